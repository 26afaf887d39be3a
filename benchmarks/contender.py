"""Processes that do work when it is their turn, so that all of a comparison see the same machine."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


class Contender:
    """A process that waits for its turn.

    Args:
        script: a benchmark that calls `serve` when its arguments are --serve and a JSON list.
        python: the interpreter, of the environment that the contender needs.
        name: its name in the script's table.
        arguments: what its function takes, JSON values.
    """

    def __init__(self, script, python, name, *arguments):
        command = [python, script, "--serve", json.dumps([name, arguments])]
        environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"} if name == "tensorflow" else None
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                                        stderr=subprocess.DEVNULL)
        self.seconds = []
        while (line := self.process.stdout.readline()) != "ready\n":
            if not line:
                raise RuntimeError(f"{name} {arguments} does not run with {python}")

    def turn(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.seconds.append(float(self.process.stdout.readline()))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def serve(table, name, arguments, warm_up=2):
    """Makes steps when told to, a number a line, and answers with the seconds that each took."""
    run = table[name](*arguments)
    run(warm_up)
    print("ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        begin = time.perf_counter()
        run(steps)
        print((time.perf_counter() - begin) / steps, flush=True)


def medians(contenders, rounds, steps):
    """Returns name -> median of the seconds a step, of contenders that took turns, and ends them.

    Args:
        contenders: name -> Contender.
        rounds: turns of each.
        steps: name -> steps of a turn.
    """
    for _ in range(rounds):
        for name, contender in contenders.items():
            contender.turn(steps[name])
    for contender in contenders.values():
        contender.end()
    return {name: statistics.median(contender.seconds) for name, contender in contenders.items()}


def parsed(description):
    """Returns the arguments of a benchmark whose contenders wait for their turn."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="python of an environment with transformers 4.35.2, torch, tf-keras")
    parser.add_argument("--quick", action="store_true", help="a small model and few steps")
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def product(*_):
    """Returns a function that multiplies two square matrices of 2,048 rows in float32."""
    import tensorflow as tf

    a = tf.random.normal((2048, 2048))
    multiply = tf.function(lambda: tf.reduce_sum(tf.matmul(a, a)))

    def run(steps):
        for _ in range(steps):
            result = multiply()
        return float(result)

    return run
