"""A Keras callback that shows what a model writes while it is trained."""

import keras

from txl_tf.inference.sampling import generate


class SamplePrinter(keras.callbacks.Callback):
    """Prints how a language model goes on from a prompt, at the end of epochs.

    Args:
        vocabulary: what turns text into token ids and back: `encode(text)` to integers (P,), `decode(ids)` to text.
        prompt: the text to go on from, of at least one token.
        every: epochs from one sample to the next.
        max_new_tokens: tokens to sample.
        settings: as of `TransformerXLLM.generate`: top_k=40, temperature, top_p, repetition_penalty, seed, mem_len, stop_tokens.

    Raises:
        ValueError: if every is below 1 or the prompt is no token; `generate` says what else can't be used.

    Example:
        trainer.fit(train, epochs=5, callbacks=[SamplePrinter(corpus.vocabulary, "def main(", seed=1)])
    """

    def __init__(self, vocabulary, prompt, every=1, max_new_tokens=100, **settings):
        super().__init__()
        self.prompt_ids = vocabulary.encode(prompt)
        if every < 1 or not len(self.prompt_ids):
            raise ValueError("every must be at least 1 and the prompt at least one token. Received: "
                             f"every={every}, prompt={prompt!r}")
        self.vocabulary, self.every, self.max_new_tokens, self.settings = vocabulary, every, max_new_tokens, settings

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every == 0:
            ids = generate(getattr(self.model, "model", self.model), self.prompt_ids, self.max_new_tokens, **self.settings)
            print(f"\n--- epoch {epoch + 1}\n{self.vocabulary.decode(ids)}\n---")
