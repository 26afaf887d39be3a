"""What is printed while training, and when."""

import keras
import numpy as np
import pytest

from data_utils.vocabulary import ByteVocabulary
from testing.segments import dataset, segments
from testing.tiny_model import tiny_model
from txl_tf.sample_printer import SamplePrinter
from txl_tf.segment_trainer import SegmentTrainer


@pytest.mark.slow_but_first
@pytest.mark.parametrize("every, epochs", [(1, [1, 2, 3]), (2, [2])])
def test_prints_what_generate_gives(capsys, every, epochs):
    made, samples = SegmentTrainer(tiny_model(n_token=256)), []
    made.compile(keras.optimizers.SGD(0.1))
    generated = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: samples.append(made.model.generate([97, 98], 7, seed=3, top_k=5)))
    vocabulary = ByteVocabulary()
    made.fit(dataset(segments()), epochs=3, verbose=0,
             callbacks=[SamplePrinter(vocabulary, "ab", every, max_new_tokens=7, seed=3, top_k=5), generated])
    expected = "".join(f"\n--- epoch {epoch}\n{vocabulary.decode(samples[epoch - 1])}\n---\n" for epoch in epochs)
    assert capsys.readouterr().out == expected
    assert not all(np.array_equal(samples[0], sample) for sample in samples)  # of the weights of that epoch


@pytest.mark.parametrize("settings", [{"every": 0}, {"prompt": ""}])
def test_refused(settings):
    with pytest.raises(ValueError, match="every must be at least 1 and the prompt at least one token. Received: every="):
        SamplePrinter(ByteVocabulary(), **{"prompt": "a", **settings})
