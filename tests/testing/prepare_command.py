"""python -m data_utils.prepare, many times in one process: each command in a fork, because TensorFlow's import takes long."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class PrepareCommand:
    """A process that has imported data_utils.prepare and runs commands, or other code, in forks of itself.

    Example:
        with PrepareCommand() as command:
            returncode, output, errors = command.run("--data_dir=data/stdlib")
    """

    def __enter__(self):
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()

    def run(self, *flags, before=""):
        """Returns (return code, or the negative signal, standard output, standard error) of a command.

        Args:
            flags: of the command.
            before: Python code that runs first.
        """
        print(json.dumps([flags, before]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def _serve():
    import os
    import tempfile

    from absl import app

    import data_utils.prepare as prepare

    prepare._define_flags()
    for line in sys.stdin:
        flags, before = json.loads(line)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                sys.stdin = open(os.devnull)
                exec(before, {})
                sys.argv[:] = ["data_utils.prepare", *flags]
                app.run(prepare._main)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = [file.seek(0) or file.read().decode("utf-8", errors="replace") for file in (output, errors)]
        print(json.dumps([status, *texts]), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    _serve()
