"""List by name the readers of files, settings, clocks and shared generators.

A list can only hold what is common: a reader that is not in it counts as its library
does, by its name and the library's version.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

_OUTSIDE = frozenset(
    f"{module}.{name}"
    for module, names in {
        "builtins": "open input eval exec __import__",
        "io": "open open_code FileIO",
        "os": "environ environb getenv getenvb getcwd getcwdb listdir scandir walk"
        " fwalk urandom getrandom getpid stat lstat open read popen system getlogin",
        "os.path": "exists lexists isfile isdir getsize getmtime",
        "sys": "argv modules path stdin",
        "glob": "glob iglob",
        "importlib": "import_module reload __import__",
        "importlib.util": "spec_from_file_location module_from_spec",
        "importlib.resources": "files open_binary open_text read_binary read_text",
        "pkgutil": "get_data",
        "runpy": "run_path run_module",
        "subprocess": "run Popen call check_call check_output getoutput"
        " getstatusoutput",
        "time": "time time_ns localtime gmtime ctime",
        "uuid": "uuid1 uuid4",
        "secrets": "choice randbelow randbits token_bytes token_hex token_urlsafe",
        "socket": "socket create_connection",
        "urllib.request": "urlopen urlretrieve",
        "sqlite3": "connect",
        "shelve": "open",
        "mmap": "mmap",
        "codecs": "open",
        "gzip": "open GzipFile",
        "bz2": "open BZ2File",
        "lzma": "open LZMAFile",
        "tarfile": "open TarFile",
        "zipfile": "ZipFile",
        "fileinput": "input FileInput",
        "linecache": "getline getlines",
        "numpy": "load loadtxt genfromtxt fromfile fromregex memmap",
        "jax.numpy": "load fromfile",
        "pandas": "read_csv read_table read_fwf read_json read_parquet read_feather"
        " read_orc read_hdf read_pickle read_excel read_sql read_sql_query"
        " read_sql_table read_stata read_sas read_spss read_xml read_html"
        " read_clipboard",
        "xarray": "open_dataset open_dataarray open_zarr open_mfdataset load_dataset"
        " load_dataarray open_datatree",
        "zarr": "open open_array open_group load",
        "scipy.io": "loadmat mmread netcdf_file readsav",
        "PIL.Image": "open",
        "h5py": "File",
        "joblib": "load",
        "torch": "load",
        "polars": "read_csv read_parquet read_json scan_csv scan_parquet",
        "matplotlib.image": "imread",
        "matplotlib.pyplot": "imread",
        "requests": "get post request Session",
        # draws from a generator that the whole process shares
        "random": "SystemRandom random uniform randint choice choices sample shuffle randrange"
        " getrandbits gauss normalvariate betavariate expovariate triangular randbytes",
        "numpy.random": "rand randn randint random random_sample choice shuffle"
        " permutation normal uniform standard_normal exponential poisson binomial beta"
        " gamma bytes geometric multinomial dirichlet laplace",
    }.items()
    for name in names.split()
)
"""Readers of files, the environment, the command line, a clock, or randomness."""
READING_METHODS = frozenset(("read_text", "read_bytes", "iterdir", "rglob"))
"""Methods of paths, which no other common class has."""
PATH_METHODS = READING_METHODS | {
    "open",
    "glob",
    "exists",
    "is_file",
    "is_dir",
    "stat",
    "resolve",
    "cwd",
    "home",
}
"""Those that only count as such where code uses paths."""


def loaded_readers() -> dict[int, tuple[str, Any]]:
    """Find the loaded readers: names and objects by their addresses."""
    readers = {}
    for name in _OUTSIDE:
        module, _, attribute = name.rpartition(".")
        reader = getattr(sys.modules.get(module), attribute, None)
        if reader is not None:
            readers[id(reader)] = name, reader
    return readers


def read_by(module: str, attributes: Collection[str]) -> str | None:
    """Find a reader that code uses which has a module and these attributes."""
    for name in sorted(_OUTSIDE):
        if name.startswith(f"{module}.") and {*name[len(module) + 1 :].split(".")} <= {
            *attributes
        }:
            return name
    return None
