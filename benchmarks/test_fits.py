"""What whole fits cost beside rivals, in processor seconds: a table at the end of ``make bench``.

The cells are those of the page on costs; the image files have to be at hand (``BAYESLOSS_DATA``)
for Fashion-MNIST. Each fit is a process of its own, and has one thread.
"""

import pandas as pd
import pytest

from bayesloss_book.data.data_sets import DataError, locate
from bayesloss_book.learning.em_cost import fits

ROWS: list[dict] = []


@pytest.fixture(scope="module", autouse=True)
def table(request):
    """Print ours beside the rivals' when all is measured."""
    yield
    if not ROWS:
        return
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line("")
    reporter.write_line(fits.table(pd.DataFrame(ROWS)).round(4).to_string(index=False))


@pytest.mark.parametrize(
    "cell", fits.cells(), ids=lambda cell: f"{cell['problem']}-{cell['method']}-{cell['repeat']}"
)
def test_fit(benchmark, cell):
    benchmark.group = cell["problem"]
    if cell["problem"].startswith("Fashion"):
        try:
            locate("fashion-mnist/train-images-idx3-ubyte.gz")
        except DataError as error:
            pytest.skip(f"needs the Fashion-MNIST files: {error}")
    found = benchmark.pedantic(fits.measure, kwargs=cell, rounds=1)
    benchmark.extra_info.update(found)
    ROWS.append(cell | found)
