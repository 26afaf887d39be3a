"""tf.functions that are forgotten with the model that they were made for."""

import functools
import weakref

import tensorflow as tf


def per_model(function=None, **options):
    """Makes of a function, whose first argument is a model, a tf.function for each model, with these options of tf.function.

    One tf.function for all models would keep the programs, and so the weights, of every model that it ever saw.
    """
    if function is None:
        return functools.partial(per_model, **options)
    functions = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def call(model, *arguments):
        if model not in functions:
            bound = functools.partial(on_model, weakref.ref(model))  # a lambda's programs TensorFlow would count, and warn of, all together
            functions[model] = tf.function(bound, **options)
        return functions[model](*arguments)

    def on_model(reference, *arguments):
        return function(reference(), *arguments)

    return call
