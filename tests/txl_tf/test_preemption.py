"""SIGTERM is heard where it is awaited, and nowhere else. Runs that it ends are in test_training_modes.py."""

import os
import signal
import threading

import tensorflow as tf

from txl_tf.preemption import STATUS, Preemption


def test_it_is_told_by_the_signal():
    preemption, before = Preemption(tf.distribute.get_strategy()), signal.getsignal(signal.SIGTERM)
    with preemption.awaited():
        assert not preemption.is_told()
        os.kill(os.getpid(), signal.SIGTERM)
        assert preemption.is_told()
    assert signal.getsignal(signal.SIGTERM) == before and preemption.is_told() and STATUS == 143


def test_elsewhere_than_in_the_main_thread_it_is_never_told():
    preemption, answers = Preemption(tf.distribute.get_strategy()), []

    def ask():
        with preemption.awaited():
            answers.append(preemption.is_told())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert answers == [False]
