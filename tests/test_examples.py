"""The notebooks in examples/: stored with the outputs of a real run, and they run from top to bottom and reach what they promise."""

import re
from pathlib import Path

import pytest

from testing.optional_package import needed

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
REACHED = {  # notebook: (what to look for in its printed text, whether the numbers found will do)
    "quickstart": [
        (r"val_bpc: ([\d.]+)", lambda *found: found[-1] < 3.0 < found[0]),
        (r"memory +\d+: valid ([\d.]+) bpc", lambda none, same, longer: none > same + 0.02 and abs(longer - same) < 0.1),
        (r"loaded and equal: (True)", lambda equal: True),
    ],
    "own_text": [
        (r"val_perplexity: ([\d.]+)", lambda *found: found[-1] < 115 and found[-1] < found[0]),
        (r"test perplexity ([\d.]+)", lambda perplexity: perplexity < 120),
    ],
    "synthesizer": [
        (r"valid ([\d.]+) bpc", lambda relative, dense, random, factorized: max(relative, dense, factorized) < min(3.4, random - 0.1)),
    ],
    "classifier": [
        (r"accuracy ([\d.]+)", lambda pretrained, random: pretrained > random + 0.02 and pretrained > 0.4),
        (r"loaded and equal: (True)", lambda equal: True),
    ],
}


def read(name):
    """Returns a notebook that is valid."""
    nbformat = needed("nbformat")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def printed(notebook):
    return "".join(output.text for output in outputs(notebook) if output.output_type == "stream" and output.name == "stdout")


def check_outputs(name, notebook):
    """Asserts that all cells ran in order, that there are pictures, and that the numbers will do."""
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    for pattern, enough in REACHED[name]:
        found = re.findall(pattern, printed(notebook))
        assert found and enough(*(True if text == "True" else float(text) for text in found)), f"{pattern}: {found}"


def test_every_notebook_has_numbers_to_reach():
    assert NOTEBOOKS == sorted(REACHED)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored(name):
    notebook, text = read(name), (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8")
    check_outputs(name, notebook)
    assert not [output.text for output in outputs(notebook) if output.get("name") == "stderr"]
    assert len(text) < 150_000
    assert not re.search(r"/(home|root|tmp|work|usr|Users)/|[A-Z]:\\\\|site-packages/", re.sub(r'"image/png": ".*"', "", text))
    assert not [cell for cell in notebook.cells if cell.metadata]  # execution times among them


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_short(name):
    cells = code_cells(read(name))
    assert len(cells) <= 12 and max(len(cell.source.splitlines()) for cell in cells) <= 15


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs(name, tmp_path):
    nbclient, _ = needed("nbclient"), needed("ipykernel")
    notebook = read(name)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    nbclient.NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check_outputs(name, notebook)
    warned = [output.text for cell in code_cells(notebook)[1:] for output in cell.outputs if output.get("name") == "stderr"]
    assert not warned  # the first cell imports TensorFlow, which logs
    assert {path.name for path in tmp_path.iterdir()} == {"data", "runs"}
