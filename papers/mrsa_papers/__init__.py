"""Every table and figure of the papers, remade and judged against what was printed.

Each item is a function of its settings: `mrsa_papers.multiround.fig4a(num_clients=60)`,
or `mrsa_papers.fig4a(...)` where one paper alone has an item of that name. What needs
JAX loads when first used: the command line's help lists the items and must not wait.
"""

from mrsa_papers._functions import give_items, papers_and_items
from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = papers_and_items(*late_names(__name__, __file__))

give_items()
