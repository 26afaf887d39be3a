"""The backbone: segments against one pass, memory, dropout's places, precisions, saving."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.test_case import LOW_PRECISION
from testing.tiny_model import randomize, tiny_config, tiny_tokens
from txl_tf.backbone import TransformerXLBackbone
from txl_tf.memory import reset_memory

ROWS = 2


def tiny_backbone(dtype=None, **settings):
    """Returns a small backbone with random weights."""
    return randomize(TransformerXLBackbone(tiny_config(**settings), dtype=dtype))


def read(backbone, token_ids, lengths, memory=None, **kwargs):
    """Returns the hidden states (B, T, D) of tokens read in segments, and the memory after them."""
    memory, outputs, start = memory or backbone.initial_memory(len(token_ids)), [], 0
    for length in lengths:
        hidden, memory = backbone((tf.constant(token_ids[:, start:start + length]), memory), **kwargs)
        outputs.append(hidden.numpy())
        start += length
    return np.concatenate(outputs, axis=1), memory


def test_one_pass_equals_segments_equals_token_by_token():
    backbone, tokens = tiny_backbone(mem_len=9), tiny_tokens(ROWS, 9)
    whole, memory = read(backbone, tokens, [9])
    for lengths in ([5, 4], [1] * 9):
        parts, memory_of_parts = read(backbone, tokens, lengths)
        np.testing.assert_allclose(parts, whole, 1e-4, 1e-4)
        np.testing.assert_allclose(memory_of_parts["hidden"], memory["hidden"], 1e-4, 1e-4)
        np.testing.assert_array_equal(memory_of_parts["length"], memory["length"])


def test_segments_equal_one_pass_at_any_memory_length_that_is_given():
    backbone, tokens = tiny_backbone(mem_len=2), tiny_tokens(ROWS, 9)
    whole, _ = read(backbone, tokens, [9])
    longer, _ = read(backbone, tokens, [5, 4], backbone.initial_memory(ROWS, mem_len=11))
    np.testing.assert_allclose(longer, whole, 1e-4, 1e-4)
    for mem_len in (0, 2):
        shorter, memory = read(backbone, tokens, [5, 4], backbone.initial_memory(ROWS, mem_len=mem_len))
        assert memory["hidden"].shape == (ROWS, 2, mem_len, 12)
        assert np.abs(shorter - whole)[:, 5:].max() > 1e-2


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{}, {"same_length": True}, {"same_length": True, "same_length_extra": False}, {"memory_start": "zeros"}, {"mem_len": 0}, {"clamp_len": 2}])
def test_a_later_token_changes_nothing_before_it(settings):
    backbone, tokens = tiny_backbone(**settings), tiny_tokens(ROWS, 5)
    _, memory = read(backbone, tiny_tokens(ROWS, 3, seed=5), [3])
    changed = tokens.copy()
    changed[:, 3] = (changed[:, 3] + 1) % backbone.config.n_token
    before, after = (read(backbone, ids, [5], memory)[0] for ids in (tokens, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).any(axis=(0, 2)).all()


def test_no_gradient_reaches_old_memory():
    backbone, tokens = tiny_backbone(), tiny_tokens(ROWS, 5)
    _, memory = read(backbone, tokens, [5])
    with tf.GradientTape() as tape:
        tape.watch(memory["hidden"])
        hidden, after = backbone((tf.constant(tokens), memory))
        loss = tf.reduce_sum(hidden ** 3) + tf.reduce_sum(after["hidden"])
    assert tape.gradient(loss, memory["hidden"]) is None


def test_new_memory_passes_no_gradient_to_the_weights():
    backbone, tokens = tiny_backbone(), tf.constant(tiny_tokens(ROWS, 5))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(backbone((tokens, backbone.initial_memory(ROWS)))[1]["hidden"])
    assert all(gradient is None for gradient in tape.gradient(loss, backbone.trainable_variables))


def test_memory_holds_exactly_the_last_inputs_of_every_layer():
    backbone, tokens = tiny_backbone(mem_len=5), tiny_tokens(ROWS, 7)
    inputs = [[] for _ in backbone.blocks]
    for block, seen in zip(backbone.blocks, inputs):
        recorded(block, lambda args, kwargs, seen=seen: seen.append(args[0].numpy()))
    _, memory = read(backbone, tokens, [3, 3, 1])
    for layer, seen in enumerate(inputs):
        np.testing.assert_array_equal(memory["hidden"][:, layer], np.concatenate(seen, axis=1)[:, -5:])
    np.testing.assert_array_equal(memory["hidden"][:, 0], backbone.token_embedding(tokens)[:, -5:])
    assert memory["length"].numpy().tolist() == [5] * ROWS


def recorded(layer, record):
    """Makes a layer tell the arguments of every call."""
    call = layer.call

    def recorder(*args, **kwargs):
        record(args, kwargs)
        return call(*args, **kwargs)

    layer.call = recorder


def test_unfilled_slots_never_matter():
    backbone, tokens = tiny_backbone(), tiny_tokens(ROWS, 5)
    _, memory = read(backbone, tokens, [2])
    garbage = tf.concat([memory["hidden"][:, :, :4] + 50.0, memory["hidden"][:, :, 4:]], axis=2)
    clean, _ = read(backbone, tokens, [5], memory)
    np.testing.assert_array_equal(read(backbone, tokens, [5], {**memory, "hidden": garbage})[0], clean)
    filled = {"hidden": garbage, "length": memory["length"] + 1}
    assert np.any(read(backbone, tokens, [5], filled)[0] != clean)


@pytest.mark.parametrize("memory_start", ["empty", "zeros"])
def test_reset_rows_begin_anew_and_the_others_go_on(memory_start):
    backbone, tokens = tiny_backbone(memory_start=memory_start), tiny_tokens(3, 9)
    _, memory = read(backbone, tokens, [5])
    on, _ = read(backbone, tokens[:, 5:], [4], memory)
    anew, _ = read(backbone, tokens[:, 5:], [4])
    mixed, _ = read(backbone, tokens[:, 5:], [4], reset_memory(memory, [False, True, False], memory_start))
    np.testing.assert_array_equal(mixed[[0, 2]], on[[0, 2]])
    np.testing.assert_array_equal(mixed[1], anew[1])
    assert np.abs(on[1] - anew[1]).max() > 1e-2


def test_zeros_at_the_start_take_part():
    tokens = tiny_tokens(ROWS, 5)
    empty, zeros = (read(tiny_backbone(memory_start=start), tokens, [5])[0] for start in ("empty", "zeros"))
    assert np.abs(empty - zeros).max() > 1e-2


def test_same_length_looks_back_as_far_from_every_token():
    backbone, tokens = tiny_backbone(n_layer=1, same_length=True, mem_len=3), tiny_tokens(ROWS, 12)
    whole, _ = read(backbone, tokens, [7, 5])
    for position in range(4, 12):
        window, _ = read(backbone, tokens[:, position - 3:position + 1], [3, 1])
        np.testing.assert_allclose(window[:, -1], whole[:, position], 1e-4, 1e-4)


def test_same_length_without_memory_sees_only_itself():
    backbone, tokens = tiny_backbone(same_length=True, mem_len=0), tiny_tokens(ROWS, 5)
    np.testing.assert_allclose(read(backbone, tokens, [5])[0], read(backbone, tokens, [1] * 5)[0], 1e-4, 1e-4)


@pytest.mark.parametrize("untie_r, extra", [(False, 0), (True, 2 * 15)])
def test_biases_are_one_pair_or_one_a_layer(untie_r, extra):
    backbone = tiny_backbone(n_layer=3, untie_r=untie_r)
    for name in ("content_bias", "position_bias"):
        assert len({id(getattr(block.attention_layer, name)) for block in backbone.blocks}) == (3 if untie_r else 1)
    kernels, fed, norms = 5 * 12 * 15, 12 * 14 + 14 + 14 * 12 + 12, 4 * 12
    assert backbone.count_params() == 11 * 12 + 3 * (kernels + fed + norms) + 2 * 15 + 2 * extra
    assert len(backbone.trainable_variables) == 1 + 3 * 13 + 2 + 2 * (len(backbone.blocks) - 1) * untie_r


def test_an_odd_width_and_a_narrow_embedding():
    backbone, tokens = tiny_backbone(d_model=7, d_embed=5, mem_len=9), tiny_tokens(ROWS, 9)
    whole, _ = read(backbone, tokens, [9])
    np.testing.assert_allclose(read(backbone, tokens, [4, 5])[0], whole, 1e-4, 1e-4)


def test_dropout_is_at_the_originals_places():
    backbone, tokens = tiny_backbone(dropout=0.5, n_layer=3, mem_len=40, d_model=20), tiny_tokens(ROWS, 40)
    positions = []
    for block in backbone.blocks:
        recorded(block, lambda args, kwargs: positions.append(kwargs["position_embedding"].numpy()))
    hidden, memory = read(backbone, tokens, [40], training=True)
    embedded, slots = backbone.token_embedding(tokens).numpy(), memory["hidden"].numpy()[:, 0]
    np.testing.assert_array_equal(slots, np.where(slots == 0, 0.0, 2 * embedded))
    for dropped in (slots == 0, positions[0] == 0, hidden == 0):
        assert 0.4 < dropped.mean() < 0.6
    assert not (memory["hidden"].numpy()[:, 1:] == 0).any()
    for shared in positions[1:]:
        np.testing.assert_array_equal(shared, positions[0])


def test_inference_drops_nothing_and_attention_dropout_is_apart():
    tokens = tiny_tokens(ROWS, 5)
    plain, _ = read(tiny_backbone(), tokens, [3, 2])
    for settings in ({"dropout": 0.5}, {"dropatt": 0.5}):
        np.testing.assert_array_equal(read(tiny_backbone(**settings), tokens, [3, 2])[0], plain)
    trained, memory = read(tiny_backbone(dropatt=0.5), tokens, [5], training=True)
    assert np.abs(trained[:, :3] - plain[:, :3]).max() > 1e-2 and not (trained == 0).any()
    np.testing.assert_array_equal(memory["hidden"][:, 0, -5:], tiny_backbone().token_embedding(tokens))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("dtype", ["float32", *LOW_PRECISION])
def test_every_precision_stays_finite(dtype):
    backbone, tokens = tiny_backbone(dtype), tf.constant(tiny_tokens(ROWS, 5))
    memory = backbone.initial_memory(ROWS)
    assert memory["hidden"].dtype == backbone.compute_dtype
    with tf.GradientTape() as tape:
        _, memory = backbone((tokens, memory))
        hidden, memory = backbone((tokens, memory))
        loss = tf.reduce_sum(tf.cast(hidden, tf.float32) ** 2)
    assert hidden.dtype == memory["hidden"].dtype == backbone.compute_dtype
    assert np.isfinite(tf.cast(hidden, tf.float32)).all()
    for gradient in tape.gradient(loss, backbone.trainable_variables):
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()
    exact, _ = read(tiny_backbone(), tokens.numpy(), [5])
    rounded, _ = read(backbone, tokens.numpy(), [5])
    assert np.abs(rounded.astype(np.float32) - exact).mean() < 0.05


def test_no_two_positions_are_equal_in_bfloat16():
    backbone = tiny_backbone("mixed_bfloat16", n_layer=1, d_model=64)
    positions = []
    recorded(backbone.blocks[0], lambda args, kwargs: positions.append(kwargs["position_embedding"]))
    read(backbone, tiny_tokens(1, 3), [3], backbone.initial_memory(1, mem_len=1997))
    assert positions[0].dtype == tf.bfloat16 and positions[0].shape == (2000, 64)
    assert len(np.unique(tf.cast(positions[0], tf.float32), axis=0)) == 2000


def test_initial_weights_follow_the_config():
    backbone = TransformerXLBackbone(tiny_config(n_token=200, d_model=60, d_embed=50, init_std=0.3, proj_init_std=0.02))
    assert np.std(backbone.token_embedding.tables[0]) == pytest.approx(0.3, rel=0.05)
    assert np.std(backbone.token_embedding.projections[0]) == pytest.approx(0.02, rel=0.1)
    kernels = [backbone.blocks[0].attention_layer.query_kernel, backbone.blocks[1].feed_forward.outer.kernel]
    assert all(np.std(kernel) == pytest.approx(0.3, rel=0.15) for kernel in kernels)
    assert np.any(np.asarray(kernels[0]) != np.asarray(backbone.blocks[1].attention_layer.query_kernel))
    uniform = TransformerXLBackbone(tiny_config(init="uniform", init_range=0.2))
    table = np.abs(uniform.token_embedding.tables[0])
    assert 0.15 < table.max() <= 0.2


def test_config_round_trip_as_json():
    backbone = TransformerXLBackbone(tiny_config(clamp_len=3, memory_start="zeros"), dtype="mixed_bfloat16", name="mine")
    config = json.loads(json.dumps(backbone.get_config()))
    copy = TransformerXLBackbone.from_config(config)
    assert json.loads(json.dumps(copy.get_config())) == config
    assert (copy.config, copy.name, copy.compute_dtype) == (backbone.config, "mine", "bfloat16")


@pytest.mark.parametrize("dtype", [None, "mixed_bfloat16"])
def test_keras_file_round_trip(tmp_path, dtype):
    backbone, tokens = tiny_backbone(dtype, untie_r=True, d_embed=5), tiny_tokens(ROWS, 5)
    backbone.save(tmp_path / "backbone.keras")
    copy = keras.saving.load_model(tmp_path / "backbone.keras")
    assert copy.config == backbone.config and copy.dtype_policy.name == backbone.dtype_policy.name
    for ours, theirs in zip(read(backbone, tokens, [3, 2]), read(copy, tokens, [3, 2])):
        tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


def test_compiled_call_equals_plain():
    backbone, tokens = tiny_backbone(), tf.constant(tiny_tokens(ROWS, 5))
    memory = backbone.initial_memory(ROWS)
    compiled = tf.function(backbone, jit_compile=True)
    for _ in range(2):
        plain = backbone((tokens, memory))
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-4), compiled((tokens, memory)), plain)
        memory = plain[1]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{}, {"memory_start": "zeros"}, {"mem_len": 0}])
def test_token_ids_alone_begin_a_text(settings):
    backbone, tokens = tiny_backbone(**settings), tiny_tokens(ROWS, 5)
    expected, _ = read(backbone, tokens, [5])
    np.testing.assert_allclose(backbone(tokens), expected, 1e-5, 1e-5)


@pytest.mark.slow
def test_under_a_classifier(tmp_path):
    backbone, tokens = tiny_backbone(dropout=0.1), tiny_tokens(4, 5)
    token_ids = keras.Input((None,), dtype="int32")
    scores = keras.layers.Dense(3)(keras.layers.GlobalAveragePooling1D()(backbone(token_ids)))
    model = keras.Model(token_ids, scores)
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(tokens, np.array([0, 1, 2, 0]), batch_size=3, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save(tmp_path / "classifier.keras")
    copy = keras.saving.load_model(tmp_path / "classifier.keras")
    np.testing.assert_array_equal(copy.predict(tokens, verbose=0), model.predict(tokens, verbose=0))


@pytest.mark.parametrize("attention", ["absolute", "random"])
def test_a_model_that_counts_places_refuses_a_memory_with_slots(attention):
    backbone = TransformerXLBackbone(tiny_config(attention=attention, mem_len=0))
    token_ids = tf.constant(tiny_tokens(2, 3))
    with pytest.raises(ValueError, match="memory must have no slots, .* Received: 2"):
        backbone((token_ids, backbone.initial_memory(2, mem_len=2)))
    compiled = tf.function(backbone, input_signature=[(tf.TensorSpec((None, None), tf.int32), {
        "hidden": tf.TensorSpec((None, 2, None, 12)), "length": tf.TensorSpec((None,), tf.int32)})])
    np.testing.assert_allclose(compiled((token_ids, backbone.initial_memory(2)))[0], backbone(token_ids), atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="memory must have no"):
        compiled((token_ids, backbone.initial_memory(2, mem_len=2)))
