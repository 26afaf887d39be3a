"""Python programs in forks of a process that has imported TensorFlow, because that import takes long."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Fork:
    """A program that runs, or has run, in a process of its own.

    Attributes:
        pid: of the process.
        stdout, stderr, returncode: what the program left, after `wait`; a negative code is that of the signal that ended it.
    """

    def __init__(self, pid, folder, forks):
        self.pid, self._folder, self._forks = pid, folder, forks
        self.returncode = None

    def wait(self):
        """Waits for the end, and returns itself."""
        if self.returncode is None:
            self.returncode = self._forks.ask("wait", self.pid)
        return self

    @property
    def stdout(self):
        return Path(self._folder.name, "stdout").read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self):
        return Path(self._folder.name, "stderr").read_text(encoding="utf-8", errors="replace")

    def seen(self, text, seconds=120):
        """Waits until the program has shown a text, or has ended, and tells whether it has shown it."""
        end = time.monotonic() + seconds
        while text not in self.stdout and self.returncode is None and time.monotonic() < end:
            time.sleep(0.01)
            self.returncode = self._forks.ask("poll", self.pid)
        return text in self.stdout


class Forks:
    """The process; `forks` returns the one of this session.

    Example:
        ended = forks().run("train_gpu.py", "--data_dir=mine", cwd=folder, devices=2)
        assert ended.returncode == 0, ended.stderr
    """

    def __init__(self):
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         cwd=ROOT, env=environment)

    def ask(self, *question):
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def start(self, program, *arguments, cwd, devices=1, env=None):
        """Starts a program and returns its Fork.

        Args:
            program: a file of the project, or -m and the first of the arguments, a module.
            arguments: its command line.
            cwd: the folder that it runs in.
            devices: logical CPUs that TensorFlow sees.
            env: more environment variables.
        """
        folder = tempfile.TemporaryDirectory()
        for name in ("stdout", "stderr"):
            Path(folder.name, name).touch()
        pid = self.ask("start", str(program), [str(argument) for argument in arguments], str(cwd), devices, env or {}, folder.name)
        return Fork(pid, folder, self)

    def run(self, *arguments, **settings):
        """Runs a program as `start` does, to its end."""
        return self.start(*arguments, **settings).wait()


@functools.cache
def forks():
    return Forks()


def _child(program, arguments, cwd, devices, env, folder):
    """Becomes the program."""
    import runpy

    import tensorflow as tf

    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_APPEND), number)
    sys.stdin = open(os.devnull, encoding="utf-8")
    os.chdir(cwd)
    os.environ.update(env)
    if devices > 1:
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0],
                                                   [tf.config.LogicalDeviceConfiguration()] * devices)
        tf.config.threading.set_inter_op_parallelism_threads(4 * devices)  # replicas wait for each other, each in a thread
    if program == "-m":
        sys.argv[:] = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = [program, *arguments]
        runpy.run_path(str(ROOT / program), run_name="__main__")
    sys.exit()


def _serve():
    import txl_tf.training_script  # noqa: F401 - what the programs need

    for line in sys.stdin:
        order, *rest = json.loads(line)
        if order == "start":
            answer = os.fork()
            if answer == 0:
                _child(*rest)
        else:
            pid, status = os.waitpid(rest[0], os.WNOHANG if order == "poll" else 0)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    _serve()
