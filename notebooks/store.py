"""Run notebooks and store their outputs.

All, or those whose names begin with an argument.
The figure of the cell tagged `answer` is attached to the first cell, which shows it
below the question. Prints the processor seconds of each run, with nothing compiled
before, for the table of docs/notebooks.md. With `MRSA_JAX_SMALL` set, notebooks run at
the size of the tests, and nothing is stored.
"""

import os
import pathlib
import resource
import sys
import tempfile

import nbclient
import nbformat

for path in sorted(pathlib.Path(__file__).parent.glob("*.ipynb")):
    if sys.argv[1:] and not path.name.startswith(tuple(sys.argv[1:])):
        continue
    notebook = nbformat.read(path, as_version=4)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        own = os.environ | {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PLATFORMS": "cpu"}
        client = nbclient.NotebookClient(
            notebook, timeout=1800, record_timing=False, coalesce_streams=True
        )
        client.execute(env=own, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{path.stem}: {seconds:.0f} s", flush=True)

    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata.pop("widgets", None)  # need a kernel, as does a view of one
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    (answer,) = (c for c in notebook.cells if "answer" in c.metadata.get("tags", []))
    pictures = [o.data["image/png"] for o in answer.outputs if "image/png" in o.get("data", {})]
    notebook.cells[0]["attachments"] = {"answer.png": {"image/png": pictures[0]}}
    if "MRSA_JAX_SMALL" not in os.environ:
        nbformat.write(notebook, path)
