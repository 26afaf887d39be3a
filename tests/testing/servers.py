"""Programs that answer requests with a SavedModel and know nothing of this project: in Python, saved_model_cli, and in C."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

_C_TYPES = {1: np.float32, 3: np.int32, 7: np.bytes_}  # of TF_DataType

_PYTHON = """
import sys
import numpy as np
import tensorflow as tf

signatures = tf.saved_model.load(sys.argv[1]).signatures
for line in sys.stdin:
    signature, request, answer = line.split()
    outputs = signatures[signature](**{name: tf.constant(value) for name, value in np.load(request).items()})
    np.savez(answer, **{name: value.numpy() for name, value in outputs.items()})
    print(" ".join({name.split(".")[0] for name in sys.modules}), flush=True)
"""

_COMMAND = """
import json
import os
import sys
from tensorflow.python.tools import saved_model_cli

for line in sys.stdin:
    log, *arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        file = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.argv[1:] = arguments
        saved_model_cli.main()
    print(os.waitpid(child, 0)[1], flush=True)
"""


class _Server:
    """A process that answers lines with lines, in a folder of its own.

    Args:
        path: of the SavedModel.

    Attributes:
        modules: the packages of Python that it had imported at its last answer, as far as it tells.
    """

    modules = frozenset()

    def __init__(self, path):
        self.path, self.folder = str(path), tempfile.TemporaryDirectory()
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder.name,
                                         env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self.folder.cleanup()

    def tell(self, line):
        print(line, file=self._process.stdin, flush=True)

    def hear(self):
        line = self._process.stdout.readline()
        assert line, f"{type(self).__name__} has ended"
        return line

    def written(self, inputs):
        """Returns the path of a file with the inputs of a request."""
        path = Path(self.folder.name, "request.npz")
        np.savez(path, **inputs)
        return path


class PythonServer(_Server):
    """Python with TensorFlow alone."""

    def command(self):
        return [sys.executable, "-I", "-c", _PYTHON, self.path]

    def ask(self, signature, inputs):
        """Returns a signature's outputs {name: array} for inputs {name: array}."""
        answer = Path(self.folder.name, "answer.npz")
        self.tell(f"{signature} {self.written(inputs)} {answer}")
        self.modules = set(self.hear().split())
        return dict(np.load(answer, allow_pickle=True))


class CommandServer(_Server):
    """saved_model_cli, in a process for each call, which has imported TensorFlow beforehand, because that takes long."""

    def command(self):
        return [sys.executable, "-I", "-c", _COMMAND]

    def run(self, *arguments):
        """Runs saved_model_cli and returns what it shows."""
        log = Path(self.folder.name, "log")
        log.unlink(missing_ok=True)
        self.tell(json.dumps([str(log), *map(str, arguments)]))
        assert int(self.hear()) == 0, log.read_text(encoding="utf-8")
        return log.read_text(encoding="utf-8")

    def answers(self, signature, *inputs):
        """Returns a signature's outputs {name: array} for inputs as arguments."""
        with tempfile.TemporaryDirectory() as folder:
            self.run("run", "--dir", self.path, "--tag_set", "serve", "--signature_def", signature, *inputs, "--outdir", folder)
            return {path.stem: np.load(path, allow_pickle=True) for path in Path(folder).iterdir()}

    def ask(self, signature, inputs):
        """Returns a signature's outputs {name: array} for inputs {name: array}."""
        file = self.written(inputs)
        return self.answers(signature, "--inputs", ";".join(f"{name}={file}[{name}]" for name in inputs))


class CServer(_Server):
    """serve.c, which shares TensorFlow's C API and loader with TensorFlow Serving.

    Args:
        path: of the SavedModel.
        program: what `compiled` returned.
    """

    def __init__(self, path, program):
        self.program = program
        super().__init__(path)

    def command(self):
        return [self.program, self.path]

    def ask(self, signature, inputs):
        """Returns a signature's outputs {name: array} for inputs {name: array}."""
        self.tell(f"{signature} {len(inputs)}")
        for name, value in inputs.items():
            value = np.asarray(value)
            self.tell(" ".join([name, *map(str, (value.ndim, *value.shape)), *map(_word, value.flat)]))
        return dict(_tensor(self.hear().split()) for _ in range(int(self.hear())))


def compiled(folder):
    """Returns the path of the program made of serve.c, in a folder."""
    library, program = tf.sysconfig.get_lib(), str(Path(folder, "serve"))
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", str(Path(__file__).with_name("serve.c")), "-o", program,
                    f"-I{tf.sysconfig.get_include()}", f"-L{library}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2",
                    f"-Wl,-rpath,{library}"], check=True)
    return program


def _word(value):
    return f"x{value.hex()}" if isinstance(value, bytes) else repr(value.item())


def _tensor(words):
    """Returns (name, array) of a line."""
    name, kind, rank, *rest = words
    shape, values = [int(word) for word in rest[:int(rank)]], rest[int(rank):]
    if int(kind) == 7:
        values = [bytes.fromhex(value[1:]) for value in values]
    return name, np.array(values, _C_TYPES[int(kind)]).reshape(shape)
