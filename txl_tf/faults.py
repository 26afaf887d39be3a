"""What goes wrong around a program, each as one sentence: a folder or output that can't be written, too little memory, a lost host."""

import contextlib
import os
import re
import signal
import sys

import tensorflow as tf

_TASK = re.compile(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError)
_ABORTED = "Collective ops is aborted"  # what the other hosts are told with any kind of error


def check_folder(folder, name="model_dir"):
    """Raises ValueError, with the name of the setting, if a folder can't be made or written; makes nothing."""
    scheme, found, _ = folder.partition("://")
    if found:
        if scheme not in tf.io.gfile.get_registered_schemes():
            raise ValueError(f"{name} must be a folder here or at an address that TensorFlow opens. Received: {name}={folder}")
        return
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest) or not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"{name} must be a folder that can be written, unlike {nearest}. Received: {name}={folder}")


@contextlib.contextmanager
def writing(folder, name="model_dir"):
    """Raises OSError, with the name of the setting, where a with block can't write to a folder, such as on a full disk."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise OSError(f"{name} must be a folder that can be written, with room for what it is to hold ({_reason(error)}). "
                      f"Received: {name}={folder}") from error


def say(text, end="\n"):
    """Prints at once. Raises OSError, with a sentence, where standard output can't be written; what is printed later is lost."""
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise type(error)(f"Standard output must be open, with room for what is printed ({_reason(error)}). "
                          f"Received: stdout={sys.stdout.name}") from error


@contextlib.contextmanager
def one_sentence(command, *errors):
    """Ends the process with one sentence of a command where a with block raises one of these errors, or is interrupted."""
    try:
        yield
    except errors as error:
        sys.exit(f"{command}: {getattr(error, 'message', None) or error}")
    except KeyboardInterrupt:
        interrupted(f"{command}: interrupted")


def interrupted(sentence):
    """Ends the process as one that the user has interrupted, with Ctrl-C."""
    print(sentence, file=sys.stderr)
    sys.exit(128 + signal.SIGINT)


@contextlib.contextmanager
def computing(strategy, **sizes):
    """Names what is lacking where a with block, the work of a tf.distribute strategy, fails for want of it.

    Raises:
        MemoryError: if a device has too little memory; with the sizes, which the sentence is about.
        ConnectionError: if another host, or the TPU, does not answer any more.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise MemoryError(
            "A step must fit into the memory of a device; a smaller train_batch_size, tgt_len or mem_len, a larger batch_chunk or "
            "remat=True need less, in evaluation a smaller eval_batch_size, eval_tgt_len or eval_mem_len. Received: "
            f"{', '.join(f'{name}={size}' for name, size in sizes.items())}") from error
    except tf.errors.OpError as error:
        if strategy.cluster_resolver is None or not (isinstance(error, _LOST) or _ABORTED in error.message):
            raise
        raise ConnectionError(
            "Every host must answer until the end; the same command on all hosts goes on from the last checkpoint. Received: nothing "
            f"more from {_lost(error.message, strategy.cluster_resolver)}") from error


def _lost(message, resolver):
    """Returns the hosts that an error names, besides this one, as "worker 1 (host1:2222)"."""
    addresses = resolver.cluster_spec().as_dict()
    named = {(job, int(number)) for job, number in _TASK.findall(message)} - {(resolver.task_type, resolver.task_id)}
    return ", ".join(f"{job} {number} ({addresses[job][number]})" for job, number in sorted(named)) or "another host"


def _reason(error):
    """Returns the first line of what an error says, without what TensorFlow puts around it."""
    said = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]$", "", (said.splitlines() or [type(error).__name__])[0])
