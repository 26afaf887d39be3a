"""Ctrl-C ends a command with one sentence from its first imports on, of which TensorFlow's takes seconds."""

import os
import signal
import sys


def end_at_interrupt(name):
    """Has Ctrl-C end this process with a sentence and status 130, until the flags are parsed; from then on it raises KeyboardInterrupt.

    Args:
        name: of the command, for the sentence.
    """
    def hear(number, frame):
        if "absl.flags" in sys.modules and sys.modules["absl.flags"].FLAGS.is_parsed():
            signal.default_int_handler(number, frame)
        os.write(2, f"{name}: interrupted\n".encode())
        os._exit(128 + number)  # an exception could be lost, or become another, in what is being imported

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored, as behind the & of a shell's script
        signal.signal(signal.SIGINT, hear)
