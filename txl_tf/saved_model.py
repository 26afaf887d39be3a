"""A trained model as a SavedModel for TensorFlow Serving: signatures without hidden state, in versioned folders."""

import contextlib
import inspect
import os
import re
import secrets
import socket

import keras
import numpy as np
import tensorflow as tf

from txl_tf.faults import writing
from txl_tf.inference.cache import check_keys, initial_cache, read, refitted, segment_length
from txl_tf.inference.sampling import ENDED, draw, memory_length
from txl_tf.language_model import TransformerXLLM
from txl_tf.memory import reset_memory
from txl_tf.model_card import model_card
from txl_tf.model_folder import write_text
from txl_tf.request_checks import checked, required
from txl_tf.stored_weights import StoredWeights

CARD = "model_card.md"
_VERSION = re.compile(r"[0-9]+")


def export_saved_model(model, vocabulary, folder, weights="float32", mem_len=None, measured_on=None, facts=None):
    """Writes a model with its signatures to a new version of a folder, as TensorFlow Serving looks for them.

    The export needs TensorFlow alone, and tensorflow-text where the vocabulary is one of subwords. Its model_card.md says what the
    signatures take and give, how they are called, and how much worse the model is by what was left out of its weights.

    Args:
        model: a TransformerXLLM.
        vocabulary: of data_utils; None: no signature takes or gives text.
        folder: the versions are its folders 1, 2, ...; here or at any address that tf.io.gfile opens.
        weights: as they are stored: "float32", "bfloat16" (which computes in bfloat16 too) or "int8".
        mem_len: slots of the memory; None: the model's.
        measured_on: (B, N) token ids on which weights that are not float32 are measured; None: what the model itself writes.
        facts: what the card is to say of the training, {name: value}.

    Returns:
        The path of the new version, which is complete as soon as it has its name.

    Raises:
        ValueError: if an argument can't be used.
        OSError: if the folder can't be written; what was there stays as it was.

    Example:
        path = export_saved_model(model, corpus.vocabulary, "served/mine")
    """
    if vocabulary is not None and vocabulary.n_token > model.config.n_token:
        raise ValueError(f"vocabulary must have at most {model.config.n_token} tokens, those of the model. Received: "
                         f"n_token={vocabulary.n_token}")
    if mem_len is not None and mem_len < 0:
        raise ValueError(f"mem_len must be at least 0. Received: mem_len={mem_len}")
    exact, model = model, _in_precision(model, weights)
    stored = StoredWeights(model, weights)
    module, functions, documented = _traced(model, vocabulary, stored, mem_len)
    positions = sum(variable.dtype.size * int(np.prod(variable.shape)) for variable in module.variables) - stored.bytes
    said = {"stored as": f"{weights}, {stored.bytes:,} bytes, beside {positions:,} bytes of projected positions", **_change(exact, model, stored, weights, measured_on)}
    card = model_card(os.path.basename(os.path.abspath(folder)), model.config, functions, documented, said, vocabulary, facts)
    with writing(folder, "export_dir"), _partial_version(folder) as partial:
        tf.saved_model.save(module, partial, signatures=functions)
        write_text(os.path.join(partial, CARD), card)
        return _as_next_version(partial, folder)


@contextlib.contextmanager
def _partial_version(folder):
    """Yields a folder beside the versions to write to, which no other export uses; it is removed at the end, if it is still there."""
    tf.io.gfile.makedirs(folder)
    for name in tf.io.gfile.listdir(folder):
        left = re.fullmatch(_partial_name(r"(\d+)", r"\w+"), name.rstrip("/"))
        if left and not _runs(int(left[1])):
            tf.io.gfile.rmtree(os.path.join(folder, name))
    partial = os.path.join(folder, _partial_name(os.getpid()))
    try:
        yield partial
    finally:
        if tf.io.gfile.exists(partial):
            tf.io.gfile.rmtree(partial)


def _partial_name(process, mark=None):
    """Returns a name of its own for what a process of this host writes; no number, so nothing that is served."""
    host = re.sub(r"\W", "_", socket.gethostname())
    return f"partial-{host}-{process}-{mark or secrets.token_hex(4)}"


def _runs(process):
    """Tells whether a process of this host runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _as_next_version(partial, folder):
    """Gives a folder the name of the next version, and returns its path."""
    while True:
        versions = [int(name.rstrip("/")) for name in tf.io.gfile.listdir(folder) if _VERSION.fullmatch(name.rstrip("/"))]
        path = os.path.join(folder, str(max(versions, default=0) + 1))
        try:
            tf.io.gfile.rename(partial, path)
            return path
        except tf.errors.OpError:
            if not tf.io.gfile.exists(path):  # else another export was faster
                raise


def _in_precision(model, weights):
    """Returns the model, or for bfloat16 a copy that computes in it."""
    if weights != "bfloat16" or model.compute_dtype == "bfloat16":
        return model
    copy = TransformerXLLM(model.config, dtype="mixed_bfloat16")
    copy.set_weights(model.get_weights())
    return copy


def _change(exact, model, stored, weights, token_ids):
    """Returns what the card says of the loss that weights cost."""
    if weights == "float32":
        return {}
    on = "given text"
    if token_ids is None:
        on, first = "text that the model wrote itself", np.random.default_rng(0).integers(0, model.config.n_token, (8, 1))
        token_ids = exact.generate(first, 255, top_k=0, seed=0)
    before = _mean_nll(exact, token_ids)
    with stored.used():
        change = _mean_nll(model, token_ids) - before
    return {"change of the loss": f"{change:+.2e} nats a token, from {before:.4f}, on {token_ids[:, 1:].size:,} tokens of {on}"}


def _mean_nll(model, token_ids):
    """Returns the mean negative log-likelihood of all tokens of rows (B, N) but the first, in nats."""
    memory, found, length = model.initial_memory(len(token_ids)), [], model.config.tgt_len
    read = tf.function(model.nll, reduce_retracing=True)
    for start in range(0, token_ids.shape[1] - 1, length):
        labels = token_ids[:, start + 1:start + length + 1]
        nll, memory = read(tf.constant(token_ids[:, start:start + labels.shape[1]]), tf.constant(labels), memory)
        found.append(nll)
    return float(tf.reduce_mean(tf.concat(found, axis=1)))


def _traced(model, vocabulary, stored, mem_len):
    """Returns (tf.Module, {signature: its concrete function}, {signature: what it does}) of what `export_saved_model` writes."""
    with stored.used():
        endpoints = _Endpoints(model, vocabulary, mem_len)
    module, functions, documented = tf.Module(), {}, {}
    module.weights, module.positions, module.tokenizer = stored.variables, endpoints.positions, vocabulary and vocabulary.tokenizer
    for name, specs in endpoints.specs().items():
        def computed(endpoint=getattr(endpoints, name), **inputs):
            with stored.used():
                return endpoint(**checked(inputs, model.config))

        named = {key: tf.TensorSpec(spec.shape, spec.dtype, key) for key, spec in specs.items()}
        functions[name] = tf.function(computed).get_concrete_function(**named)
        documented[name] = inspect.getdoc(getattr(endpoints, name))
    functions["serving_default"] = functions["generate_text" if vocabulary is not None else "generate"]
    return module, functions, documented


class _Endpoints:
    """The signatures of a model. Each method is one, and its arguments are the tensors of its inputs, batch first.

    Rows of several lengths are padded behind their ends; `length` says how many tokens of each count. A row whose
    memory_length or cache_length is 0 begins a text, whatever the rest of its memory holds. All inputs are `checked`.
    """

    def __init__(self, model, vocabulary, mem_len):
        self.model, self.vocabulary, self.config = model, vocabulary, model.config
        self.mem_len = model.config.mem_len if mem_len is None else mem_len
        self.cache_len = memory_length(model, mem_len)
        check_keys(model.config, self.mem_len, model.config.tgt_len)
        self._reader = keras.Model(model.backbone.input, (model.backbone.output[0], model.backbone.remembered))
        positions = initial_cache(model, 1, self.cache_len)["positions"]
        self.positions = tf.nest.map_structure(lambda value: tf.Variable(value, trainable=False), positions)  # projected once, not in each call

    def specs(self):
        """Returns {signature: {input: tf.TensorSpec}}."""
        config, (cached, *_) = self.config, initial_cache(self.model, 1, 0)["layers"]
        rows = {name: tf.TensorSpec((None,), dtype) for name, dtype in (
            ("max_new_tokens", tf.int32), ("temperature", tf.float32), ("top_k", tf.int32), ("top_p", tf.float32), ("seed", tf.int64))}
        tokens = {"token_ids": tf.TensorSpec((None, None), tf.int32), "length": tf.TensorSpec((None,), tf.int32)}
        memory = {"memory": tf.TensorSpec((None, config.n_layer, None, config.memory_width), tf.float32),
                  "memory_length": tf.TensorSpec((None,), tf.int32)}
        cache = {f"cache_{name}": tf.TensorSpec((None, config.n_layer, ring.shape[1], self.cache_len, ring.shape[3]), tf.float32)
                 for name, ring in cached.items()}
        text = {"text": tf.TensorSpec((None,), tf.string)}
        found = {"score": {**tokens, **memory}, "next_token": {**tokens, **memory},
                 "generate": {**tokens, **rows, "stop_token": tf.TensorSpec((None,), tf.int32)}, "prefill": tokens,
                 "step": {"token_id": tf.TensorSpec((None,), tf.int32), **cache, "cache_length": tf.TensorSpec((None,), tf.int32)}}
        if self.vocabulary is not None:
            found |= {"score_text": text, "generate_text": {**text, **rows}}
        return found

    def score(self, token_ids, length, memory, memory_length):
        """The log-probability of each token but the first of the row, which stands for the last one of the call before.

        Returns: log_probs (B, T), 0 at the first token and behind the end; memory and memory_length after all tokens but the
        last, with which the next call begins.
        """
        before = self._memory(memory, memory_length)
        hidden, remembered = self._reader((token_ids, before))
        labels = tf.pad(token_ids[:, 1:], ((0, 0), (0, 1)))  # (B, T)
        log_probs = tf.pad(-self.model.head.nll(hidden, labels), ((0, 0), (1, 0)))[:, :-1]  # (B, T)
        counted = tf.range(tf.shape(token_ids)[1]) < length[:, None]
        return {"log_probs": tf.where(counted, log_probs, 0.0), **_after(before, remembered, length - 1)}

    def next_token(self, token_ids, length, memory, memory_length):
        """The log-probabilities (B, V) of the token that follows each row; memory and memory_length after all its tokens."""
        before = self._memory(memory, memory_length)
        hidden, remembered = self._reader((token_ids, before))
        last = tf.gather(hidden, length - 1, batch_dims=1)[:, None]  # (B, 1, D)
        return {"log_probs": self.model.head.log_probs(last)[:, 0], **_after(before, remembered, length)}

    def generate(self, token_ids, length, max_new_tokens, temperature, top_k, top_p, seed, stop_token):
        """Up to max_new_tokens sampled tokens after each row, as `TransformerXLLM.generate` samples them.

        Returns: token_ids (B, N) and length (B,), how many of them are sampled; the rest is 0. Row by row: temperature 0 takes
        the likeliest token, top_k 0 draws among all, top_p 1 too, below it among the likeliest whose probabilities reach it; the same
        seed draws the same, whatever else is in the batch; stop_token ends the row when it has been sampled (-1: none).
        """
        hidden, cache = self._read_rows(token_ids, length)
        top_k = tf.where(top_k < 1, self.config.n_token, tf.minimum(top_k, self.config.n_token))

        def drawn(hidden, index):
            log_probs, ids = tf.math.top_k(self.model.head.log_probs(hidden)[:, 0], tf.reduce_max(top_k))  # (B, K)
            log_probs = tf.where(tf.range(tf.shape(ids)[1]) < top_k[:, None], log_probs, -float("inf"))
            return draw(log_probs, ids, seed, index, temperature, top_p)

        token, index = drawn(hidden, 0), 1
        tokens = tf.TensorArray(tf.int32, 1, dynamic_size=True, element_shape=(None,)).write(0, token)
        ended = (max_new_tokens < 2) | (token == stop_token)
        while not tf.reduce_all(ended):
            hidden, cache = read(self.model, token[:, None], cache)
            token = drawn(hidden, index)
            tokens, index = tokens.write(index, tf.where(ended, ENDED, token)), index + 1
            ended |= (index >= max_new_tokens) | (token == stop_token)
        sampled = tf.transpose(tokens.stack())  # (B, N)
        return {"token_ids": tf.maximum(sampled, 0), "length": tf.math.count_nonzero(sampled != ENDED, axis=1, dtype=tf.int32)}

    def prefill(self, token_ids, length):
        """The log-probabilities (B, V) of the token that follows each row, and its keys and values, for `step`."""
        hidden, cache = self._read_rows(token_ids, length)
        return {"log_probs": self.model.head.log_probs(hidden)[:, 0], **_exchanged(cache, 0, self.cache_len)}

    def step(self, token_id, cache_length, **cache):
        """The log-probabilities (B, V) of the token after one more, and keys and values with that one, the newest last.

        Where cache_length is 0, keys and values are of this shape too, with whatever numbers.
        """
        empty = initial_cache(self.model, tf.shape(token_id)[0], self.cache_len)
        layers = tuple({name: tf.concat([tf.cast(cache[f"cache_{name}"][:, index], ring.dtype), ring[:, :, :1]], axis=2)
                        for name, ring in layer.items()} for index, layer in enumerate(empty["layers"]))
        counts = _newest(cache_length, self.cache_len + 1, 1)[:, None, :, None]
        layers = tf.nest.map_structure(lambda new, kept: tf.where(counts, kept, new), empty["layers"], layers)
        before = {**empty, "layers": layers, "positions": self._read_positions(), "next": tf.constant(self.cache_len),
                  "length": tf.where(cache_length < 1, empty["length"], cache_length)}
        hidden, after = read(self.model, token_id[:, None], before)
        return {"log_probs": self.model.head.log_probs(hidden)[:, 0], **_exchanged(after, 1, self.cache_len)}

    def score_text(self, text):
        """The log-probability of each token of a text but its first, of which nothing is known.

        Returns: token_ids (B, T) and length (B,), the text's tokens; log_probs (B, T), 0 at the first and behind the end;
        log_prob (B,), their sum.
        """
        token_ids, length = self._tokens(text)
        log_probs = tf.where(tf.range(tf.shape(token_ids)[1]) < length[:, None], self._read_text(token_ids), 0.0)
        return {"token_ids": token_ids, "length": length, "log_probs": log_probs, "log_prob": tf.reduce_sum(log_probs, axis=1)}

    def generate_text(self, text, **settings):
        """What `generate` samples after a text, as text (B,) of UTF-8; bytes that are none become U+FFFD. A text must hold a token."""
        token_ids, length = self._tokens(text)
        length = required(length, length > 0, "text must hold at least one token. Received: tokens", length)
        if self.config.window:
            length = required(length, length + settings["max_new_tokens"] <= self.config.window, "text and max_new_tokens must together be at "
                              f"most {self.config.window} tokens. Received: tokens", length)
        sampled = self.generate(token_ids, length, stop_token=tf.fill(tf.shape(length), -1), **settings)
        text = self.vocabulary.tokenizer.detokenize(tf.RaggedTensor.from_tensor(sampled["token_ids"], sampled["length"]))
        return {"text": tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")}

    def _memory(self, memory, length):
        """Returns what clients hand over as memory of M slots, whatever number of slots it has."""
        empty = self.model.initial_memory(tf.shape(memory)[0], self.mem_len)["hidden"]
        hidden = tf.concat([empty, tf.cast(memory, empty.dtype)], axis=2)[:, :, tf.shape(memory)[2]:]
        hidden = tf.where(_newest(length, self.mem_len)[:, None, :, None], hidden, 0)
        memory = {"hidden": tf.ensure_shape(hidden, empty.shape), "length": tf.minimum(length, self.mem_len)}
        return reset_memory(memory, length < 1, self.config.memory_start)

    def _tokens(self, text):
        ragged = self.vocabulary.tokenizer.tokenize(text)
        return ragged.to_tensor(), tf.cast(ragged.row_lengths(), tf.int32)

    def _read_rows(self, token_ids, length):
        """Returns (hidden states (B, 1, D) of the rows' last tokens, cache for single tokens)."""
        segments, lengths = _ended_together(token_ids, length, segment_length(self.config, self.cache_len))
        rows, segment_len = tf.shape(segments)[1], tf.shape(segments)[2]
        cache = initial_cache(self.model, rows, self.cache_len, segment_len)
        hidden = tf.zeros((rows, segment_len, self.config.d_model), self.model.compute_dtype)
        for number in tf.range(tf.shape(segments)[0]):
            hidden, cache = read(self.model, segments[number], cache, lengths[number])
        return hidden[:, -1:], {**refitted(self.model, cache, self.cache_len, 1), "positions": self._read_positions()}

    def _read_positions(self):
        return tf.nest.map_structure(tf.convert_to_tensor, self.positions)

    def _read_text(self, token_ids):
        """Returns the log-probabilities (B, T) of the tokens, read in segments as `txl_tf.inference.scoring.score` does."""
        labels = tf.maximum(tf.shape(token_ids)[1] - 1, 0)
        segment_len = tf.clip_by_value(labels, 1, self.config.tgt_len)
        count = tf.maximum(-(-labels // segment_len), 1)
        padded = tf.pad(token_ids, ((0, 0), (0, count * segment_len + 1 - tf.shape(token_ids)[1])))
        rows = tf.shape(token_ids)[0]
        cache = initial_cache(self.model, rows, self.mem_len, segment_len)
        log_probs = tf.TensorArray(tf.float32, count, element_shape=(None, None))
        for number in tf.range(count):
            start = number * segment_len
            hidden, cache = read(self.model, padded[:, start:start + segment_len], cache)
            log_probs = log_probs.write(number, -self.model.head.nll(hidden, padded[:, start + 1:start + segment_len + 1]))
        joined = tf.reshape(tf.transpose(log_probs.stack(), (1, 0, 2)), (rows, count * segment_len))
        return tf.pad(joined, ((0, 0), (1, 0)))[:, :tf.shape(token_ids)[1]]


def _newest(length, slots, after=0):
    """Returns (B, slots) boolean, true at the length (B,) slots before the last `after`; no number in the others counts, not even NaN."""
    ages = slots - after - tf.range(slots)
    return (ages > 0) & (ages <= length[:, None])


def _after(memory, remembered, counts):
    """Returns the memory after the first counts (B,) tokens of a segment, of which the layers have remembered."""
    mem_len = tf.shape(memory["hidden"])[2]
    hidden = tf.concat([memory["hidden"], tf.stack(remembered, axis=1)], axis=2)  # (B, L, M+T, D)
    hidden = tf.gather(hidden, counts[:, None] + tf.range(mem_len), axis=2, batch_dims=1)  # (B, L, M, D)
    return {"memory": tf.cast(hidden, tf.float32), "memory_length": tf.minimum(memory["length"] + counts, mem_len)}


def _exchanged(cache, oldest, slots):
    """Returns the M slots of a cache for single tokens from the oldest on, which is slot 0 or 1 of its 1+M, as clients get them."""
    found = {"cache_length": cache["length"]}
    for name in cache["layers"][0]:
        kept = tf.stack([layer[name][:, :, oldest:oldest + slots] for layer in cache["layers"]], axis=1)  # (B, L, N, M, H)
        found[f"cache_{name}"] = tf.ensure_shape(tf.cast(kept, tf.float32), (*kept.shape[:3], slots, kept.shape[4]))
    return found


def _ended_together(token_ids, length, tgt_len):
    """Returns rows as segments (K, B, T) that all end together, and how many tokens at the end of each count (K, B)."""
    rows, longest = tf.shape(token_ids)[0], tf.shape(token_ids)[1]
    segment_len = tf.clip_by_value(longest, 1, tgt_len)
    count = tf.maximum(-(-longest // segment_len), 1)
    places = tf.range(count * segment_len) - (count * segment_len - length[:, None])  # in the row, from the left
    padded = tf.pad(token_ids, ((0, 0), (0, 1)))
    moved = tf.where(places < 0, 0, tf.gather(padded, tf.maximum(places, 0), batch_dims=1))
    lengths = tf.clip_by_value(length - segment_len * tf.range(count - 1, -1, -1)[:, None], 0, segment_len)
    return tf.transpose(tf.reshape(moved, (rows, count, segment_len)), (1, 0, 2)), lengths
