"""The shape of the code as DESIGN fixes it: who imports whom, sizes, names. Read with ast; nothing is imported."""

import ast
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {"setup.cfg", "README.md", "txl_tf", "data_utils", "train_tpu.py", "train_gpu.py", "tests", "pyproject.toml", ".ci",
             ".gitignore", "LICENSE", "examples", "benchmarks"}
SCRIPTS = ("train_gpu", "train_tpu")
LAYERS, PEERS, TOP = 1, 4, 6
LEVELS = {  # a module imports its own level and those below; a new module gets its line here
    "config_checks": 0, "layer_checks": 0, "config": 0, "metrics": 0, "memory": 0, "optimization": 0, "cluster": 0, "distribution": 0, "faults": 0, "preemption": 0, "replica_memory": 1,
    "train_step": 1, "run_state": 1,
    "attention": LAYERS, "layers": LAYERS, "heads": LAYERS, "presets": 1, "parameter_count": 1, "host_memory": 1, "flags": 2, "progress": 1,
    "backbone": 2,
    "language_model": 3,
    "segment_trainer": PEERS, "sample_printer": 5, "inference": PEERS, "stored_weights": PEERS, "model_card": 1, "request_checks": 1,
    "saved_model": 5, "checkpoints": PEERS, "model_folder": PEERS, "added_tokens": PEERS,
    "run_folder": 5, "warm_start": 5, "training": 5,
    "analysis": TOP, "generate": TOP, "score": TOP, "export": TOP, "convert": TOP, "average_checkpoints": TOP, "tpu_check": TOP,
    "training_script": TOP,
}
ALLOWED_BELOW = {  # the few that must not see all that is below them
    "attention": {"attention", "layer_checks", "memory"}, "layers": {"attention", "layer_checks", "layers", "memory"},
    "heads": {"heads", "layer_checks", "layers"}, "layer_checks": set(),
    "presets": {"config"}, "parameter_count": {"attention"}, "flags": {"config", "presets"}, "progress": {"faults", "metrics"}, "model_card": {"config"}, "request_checks": set(),
    "memory": set(), "metrics": set(), "optimization": set(), "config_checks": set(), "config": {"config_checks"}, "distribution": {"cluster"}, "cluster": {"faults"}, "faults": set(), "preemption": set(),
    "replica_memory": {"distribution"}, "train_step": {"distribution", "optimization", "replica_memory"}, "run_state": {"distribution", "faults"},
}
DATA_READERS = {"", "model_folder", "analysis", "checkpoints"}  # besides the command modules, for which the package itself is one
FACADES = {"generate": "inference", "from_preset": "model_folder", "save_to_preset": "model_folder"}  # of language_model.py
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
SEVERAL_CLASSES = {"txl_tf/config.py": {"ModelConfig", "TrainConfig", "DataConfig"},
                   "txl_tf/attention/multi_head.py": {"MultiHeadAttentionBase", "Ring"},
                   "txl_tf/attention/dense_synthesizer.py": {"DenseSynthesizer", "Form"},
                   "data_utils/text_sources.py": {"TextFile", "MemoryText", "SymbolFile", "TfdsText"},
                   "data_utils/pickle_machine.py": {"PickleMachine", "Python2Text", "RefusedError"}}
OTHER_CLASS_NAMES = {"txl_tf/language_model.py": "TransformerXLLM", "txl_tf/optimization.py": "WarmupCosine", "txl_tf/attention/__init__.py": "Attention",
                     "txl_tf/heads/chunked_loss.py": "Span"}  # the last: a record
UNREGISTERED = {"MultiHeadAttentionBase", "SynthesizerBase", "SoftmaxHead", "SamplePrinter", "_BeginsEpoch", "_OfEachHead"}  # never in a saved model
UNTESTED_NAMES = {"__init__.py"}


def sources(root, *folders):
    """Returns the project's Python files below some folders, or the scripts and all folders, as sorted paths."""
    found = [path for folder in folders or ("txl_tf", "data_utils", "tests", "benchmarks") for path in (root / folder).rglob("*.py")]
    scripts = [] if folders else [root / f"{name}.py" for name in SCRIPTS if (root / f"{name}.py").exists()]
    return sorted(found) + scripts


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(root, path):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(root, path):
    """Returns (module imported, function it stands in or None) for every import of a file; names that are modules count whole."""
    package = module_name(root, path) if path.name == "__init__.py" else module_name(root, path).rpartition(".")[0]
    found = []

    def visit(node, function):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, function) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join([*package.split(".")[:len(package.split(".")) + 1 - child.level], *filter(None, [child.module])]
                                ) if child.level else child.module
                for alias in child.names:
                    found.append((f"{base}.{alias.name}" if is_module(root, f"{base}.{alias.name}") else base, function))
            visit(child, child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function)

    visit(parsed(path), None)
    return found


def is_module(root, name):
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def is_command(path):
    """Tells whether a file has a `if __name__ == "__main__"`."""
    return any(isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" for node in parsed(path).body)


def commands(root):
    found = [path for path in sources(root, "txl_tf") if is_command(path)]
    return {module_name(root, path) for path in found} | set(SCRIPTS)


def part(module):
    """Returns the key in LEVELS of a module of txl_tf."""
    return (module.split(".") + [""])[1]


def wrong_directions(root):
    """Returns the imports within txl_tf that go up, or to where their part may not look."""
    wrong = []
    for path in sources(root, "txl_tf"):
        importer = part(module_name(root, path))
        if path == root / "txl_tf" / "__init__.py":
            continue
        if importer not in LEVELS:
            wrong.append(f"{importer} has no place in LEVELS")
            continue
        for module, function in imports(root, path):
            if module.split(".")[0] != "txl_tf" or (importer == "language_model" and FACADES.get(function) == part(module)):
                continue
            imported = part(module)
            allowed = ALLOWED_BELOW.get(importer, LEVELS.keys()) | {importer}
            if imported not in allowed or LEVELS[imported] > LEVELS[importer]:
                wrong.append(f"{module_name(root, path)} imports {module}")
    return wrong


def import_cycles(root):
    """Returns the modules that, over others, import themselves."""
    paths = [path for path in sources(root, "txl_tf", "data_utils") if path.parent != root]
    graph = {module_name(root, path): {module for module, function in imports(root, path) if function is None} for path in paths}
    for module in graph:
        reached, waiting = set(), list(graph[module])
        while waiting:
            step = waiting.pop()
            if step not in reached:
                reached.add(step)
                waiting.extend(graph.get(step, ()))
        if module in reached:
            yield module


def foreign_imports_of_config(root):
    checks = "txl_tf.config_checks"
    return [module for name in ("config", "config_checks") if (root / "txl_tf" / f"{name}.py").exists()
            for module, _ in imports(root, root / "txl_tf" / f"{name}.py")
            if module.split(".")[0] not in sys.stdlib_module_names and not (module == checks or module.startswith(f"{checks}."))]


def wrong_data_imports(root):
    """Returns the imports between txl_tf and data_utils that are not those of the scripts, the commands and DATA_READERS."""
    wrong = [f"{module_name(root, path)} imports {module}" for path in sources(root, "data_utils")
             for module, _ in imports(root, path) if module.split(".")[0] in {"txl_tf", *SCRIPTS}]
    readers = commands(root)
    for path in sources(root, "txl_tf"):
        name = module_name(root, path)
        if name not in readers and part(name) not in DATA_READERS:
            wrong += [f"{name} imports {module}" for module, _ in imports(root, path) if module.split(".")[0] == "data_utils"]
    return wrong


def imported_commands(root):
    known = commands(root)
    paths = [path for path in sources(root) if root / "tests" not in path.parents]
    return [f"{module_name(root, path)} imports {module}" for path in paths for module, _ in imports(root, path) if module in known]


def too_long(root):
    """Returns files above 400 lines (scripts: 80) and functions above 60."""
    wrong = []
    for path in sources(root):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > (80 if path.parent == root else 400):
            wrong.append(f"{path.relative_to(root)} has {lines} lines")
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno >= 60:
                wrong.append(f"{path.relative_to(root)}: {node.name} has {node.end_lineno - node.lineno + 1} lines")
    return wrong


def without_docstring(root):
    """Returns files that do not open with a docstring whose first line is a sentence; what follows it stands apart."""
    wrong = []
    for path in sources(root):
        lines = (ast.get_docstring(parsed(path), clean=False) or "").split("\n")
        opens = path.read_text(encoding="utf-8").startswith('"""') and lines[0].endswith(".")
        if not opens or (len(lines) > 1 and lines[1]):
            wrong.append(str(path.relative_to(root)))
    return wrong


def vague_names(root):
    return [str(path.relative_to(root)) for path in sources(root)
            if {path.stem.removeprefix("test_"), path.parent.name} & VAGUE_NAMES]


def unlike_names(root):
    """Returns files with more than one public class, or one of another name than the file's."""
    wrong = []
    for path in sources(root, "txl_tf", "data_utils"):
        name = path.relative_to(root).as_posix()
        public = {node.name for node in parsed(path).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}
        if public and public != SEVERAL_CLASSES.get(name) and not _named_alike(name, public):
            wrong.append(f"{name} has {', '.join(sorted(public))}")
    return wrong


def _named_alike(name, public):
    class_name = "".join(public)
    words = Path(name).stem.removesuffix("s").split("_")
    alike = OTHER_CLASS_NAMES.get(name) == class_name or re.search(".*".join(words), class_name.lower())
    return len(public) == 1 and bool(alike)


def without_test(root):
    """Returns the source files that have no test file of the same name."""
    paths = [path for path in sources(root, "txl_tf", "data_utils") if path.name not in UNTESTED_NAMES]
    paths += [path for path in sources(root) if path.parent == root]
    homes = {path: root / "tests" / path.relative_to(root).with_name(f"test_{path.name}") for path in paths}
    return [str(path.relative_to(root)) for path, test in homes.items() if not test.is_file()]


def names_given_twice(root):
    """Returns the functions and classes that a later one of the same name in the same place hides."""
    wrong = []
    for path in sources(root):
        for place in ast.walk(parsed(path)):
            if isinstance(place, (ast.Module, ast.ClassDef)):
                names = [node.name for node in place.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not _is_setter(node)]
                wrong += [f"{path.relative_to(root)} has {name} twice" for name in sorted(set(names)) if names.count(name) > 1]
    return wrong


def _is_setter(node):
    return any(ast.unparse(decorator) == f"{node.name}.setter" for decorator in node.decorator_list)


def unregistered_classes(root):
    """Returns classes of txl_tf that come, directly or over each other, from Keras and are not registered under txl_tf."""
    classes = {}
    for path in sources(root, "txl_tf"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                classes[node.name] = ([ast.unparse(base) for base in node.bases], [ast.unparse(name) for name in node.decorator_list])

    def from_keras(name):
        return name.startswith("keras.") or any(from_keras(base) for base in classes.get(name, ([], []))[0])

    return [name for name, (_, decorators) in classes.items() if from_keras(name) and name not in UNREGISTERED
            and "keras.saving.register_keras_serializable('txl_tf')" not in decorators]


def strangers(root):
    """Returns what lies at the top level and is not among TOP_LEVEL."""
    try:
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
        names = {name.split("/")[0] for name in listed.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):
        names = set()
    return sorted((names or _names_without_git(root)) - TOP_LEVEL)


def _names_without_git(root):
    ignore_file = root / ".gitignore"
    ignored = ignore_file.read_text(encoding="utf-8").split() if ignore_file.is_file() else []
    patterns = [pattern.strip("/") for pattern in ignored]
    return {path.name for path in root.iterdir() if not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)
            and not (path.is_dir() and path.name.startswith("."))}


def project(root, files):
    """Writes a tiny project: {path: text}; packages get their __init__.py."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for folder in path.relative_to(root).parents:
            if folder != Path(".") and not (root / folder / "__init__.py").exists():
                (root / folder / "__init__.py").write_text('"""A package."""\n', encoding="utf-8")
    return root


RULES = {  # rule: (what breaks it in a tiny project, what it must then say)
    wrong_directions: [
        ({"txl_tf/layers/wide.py": "from txl_tf import config", "txl_tf/config.py": ""}, "txl_tf.layers.wide imports txl_tf.config"),
        ({"txl_tf/backbone.py": "def late():\n    import txl_tf.training", "txl_tf/training.py": ""}, "imports txl_tf.training"),
        ({"txl_tf/heads/deep.py": "from .. import backbone", "txl_tf/backbone.py": ""}, "txl_tf.heads.deep imports txl_tf.backbone"),
        ({"txl_tf/language_model.py": "from txl_tf import model_folder", "txl_tf/model_folder.py": ""}, "imports txl_tf.model_folder"),
        ({"txl_tf/backbone.py": "import txl_tf"}, "txl_tf.backbone imports txl_tf"),
        ({"txl_tf/elsewhere.py": ""}, "elsewhere has no place"),
    ],
    import_cycles: [({"txl_tf/layers/a.py": "import txl_tf.layers.b", "txl_tf/layers/b.py": "from . import a"}, "txl_tf.layers.a")],
    foreign_imports_of_config: [({"txl_tf/config.py": "import dataclasses\nimport numpy"}, "numpy")],
    wrong_data_imports: [
        ({"txl_tf/training.py": "from data_utils.corpus import Corpus"}, "txl_tf.training imports data_utils.corpus"),
        ({"data_utils/corpus.py": "def late():\n    from txl_tf import config"}, "data_utils.corpus imports txl_tf"),
    ],
    imported_commands: [
        ({"txl_tf/score.py": 'if __name__ == "__main__":\n    pass', "txl_tf/export.py": "from txl_tf import score"},
         "txl_tf.export imports txl_tf.score"),
    ],
    too_long: [
        ({"txl_tf/training.py": "\n" * 401}, "txl_tf/training.py has 401 lines"),
        ({"train_gpu.py": "\n" * 81}, "train_gpu.py has 81 lines"),
        ({"data_utils/records.py": "def long():\n" + "    pass\n" * 60}, "long has 61 lines"),
    ],
    without_docstring: [
        ({"txl_tf/memory.py": "import os\n"}, "txl_tf/memory.py"),
        ({"txl_tf/memory.py": '"""Begins,\n\nand goes on."""\n'}, "txl_tf/memory.py"),
        ({"txl_tf/memory.py": '"""Begins.\nAnd goes on at once."""\n'}, "txl_tf/memory.py"),
    ],
    vague_names: [({"txl_tf/helpers.py": ""}, "txl_tf/helpers.py"), ({"data_utils/common/files.py": ""}, "data_utils/common/files.py")],
    unlike_names: [
        ({"txl_tf/progress.py": "class Progress: pass\nclass Clock: pass"}, "Clock, Progress"),
        ({"txl_tf/layers/feed_forward.py": "class Dense: pass"}, "Dense"),
    ],
    names_given_twice: [({"tests/test_memory.py": "class TestIt:\n    def test_a(self): pass\n    def test_a(self): pass"}, "test_a twice")],
    without_test: [({"txl_tf/layers/wide.py": "", "tests/txl_tf/test_wide.py": ""}, "txl_tf/layers/wide.py")],
    unregistered_classes: [
        ({"txl_tf/layers/a.py": "class A(keras.layers.Layer): pass"}, "A"),
        ({"txl_tf/layers/a.py": "class Base(keras.Model): pass\n@keras.saving.register_keras_serializable()\nclass B(Base): pass"}, "B"),
    ],
    strangers: [({"txl_tf/config.py": "", "notes.txt": ""}, "notes.txt")],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps(rule):
    assert list(rule(ROOT)) == []


@pytest.mark.parametrize("rule, files, complaint", [(rule, *case) for rule, cases in RULES.items() for case in cases],
                         ids=[rule.__name__ for rule, cases in RULES.items() for _ in cases])
def test_a_breach_is_noticed(rule, files, complaint, tmp_path):
    found = list(rule(project(tmp_path, files)))
    assert any(complaint in line for line in found), found


def test_what_is_allowed_passes(tmp_path):
    project(tmp_path, {
        "txl_tf/language_model.py": "def generate(self):\n    from txl_tf.inference import sampling",
        "txl_tf/inference/sampling.py": "",
        "txl_tf/model_folder.py": "from data_utils import vocabulary\nfrom txl_tf.language_model import TransformerXLLM",
        "txl_tf/score.py": 'import data_utils\nif __name__ == "__main__":\n    pass',
        "data_utils/vocabulary.py": "import numpy",
    })
    assert wrong_directions(tmp_path) == wrong_data_imports(tmp_path) == imported_commands(tmp_path) == list(import_cycles(tmp_path)) == []


def test_the_top_level_is_judged_without_git_too(tmp_path):
    project(tmp_path, {"setup.cfg": "", ".gitignore": "/data/\n*.egg-info/\n", "notes/a.py": ""})
    for name in ("data", "txl_tf.egg-info", ".hypothesis"):
        (tmp_path / name).mkdir()
    assert strangers(tmp_path) == ["notes"]
