"""The card of an export: what it holds, what its signatures take and give, and how they are called."""

import json
import math

import tensorflow as tf

from txl_tf.config import SYNTHESIZERS

_EXAMPLE = {"text": ["def main("], "token_ids": [[1, 2, 3]], "length": [3], "max_new_tokens": [50], "temperature": [1.0], "top_k": [40],
            "top_p": [1.0], "seed": [1], "stop_token": [-1]}
_ONE_ROW, _DEFAULT_LIMIT = 1 << 10, 4 << 20  # bytes: what else is in a message; what gRPC takes in by default


def model_card(name, config, functions, documented, weights, vocabulary=None, facts=None):
    """Returns the card as Markdown.

    Args:
        name: of the served model.
        config: its ModelConfig.
        functions: {signature: concrete function}.
        documented: {signature: what it does}.
        weights: {what is to be said of them: value}, such as their bytes.
        vocabulary: of data_utils; None: there is none.
        facts: {what is to be said of the training: value}.
    """
    inputs = {signature: _specs(function.structured_input_signature[1]) for signature, function in functions.items()}
    outputs = {signature: _specs(function.structured_outputs) for signature, function in functions.items()}
    default = next(signature for signature in documented if inputs[signature] == inputs["serving_default"])
    parts = [
        f"# {name}\n\nA {_kind(config)} language model for TensorFlow Serving, of {config.n_layer} layers, width {config.d_model} and "
        f"{config.n_head} heads, over {config.n_token:,} tokens. Exported with TensorFlow {tf.__version__}.",
        _bullets("Weights", weights), _bullets("Training", facts or {}), _vocabulary(vocabulary),
        "## Signatures\n\nThe first dimension of every tensor is the batch B. Rows of several lengths are padded behind their ends, with "
        "whatever ids; `length` says how many tokens of each count, at least one. Of `memory` the last `memory_length` slots count, the newest last. "
        "A row whose `memory_length` or `cache_length` is 0 begins a text; then `memory` may have no slots at all. In requests that a server "
        "merges, and in JSON, where no slots have no width, it must have all of its slots, or one, of whatever numbers, where a text begins. "
        "Log-probabilities are in nats. A token sees the memory and all before it in its call, so longer calls see more: the model was "
        f"trained on segments of {config.tgt_len} tokens, and signatures without `memory` read them one by one{_rows(config)}. Inputs that mean nothing are refused with InvalidArgument. `serving_default` is `{default}`.",
        *(_signature(signature, inputs[signature], outputs[signature], text) for signature, text in documented.items()),
        _bytes(inputs, outputs, documented), _calls(name, default, inputs[default], outputs[default]), _batching(name)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _kind(config):
    if "relative" in config.attentions:
        return "Transformer-XL"
    return "Synthesizer" if set(SYNTHESIZERS) & set(config.attentions) else "Transformer"


def _rows(config):
    """Returns how long rows can be or should be."""
    if config.window:
        return f". It knows the places of {config.window} tokens: no text, with what is added, may be longer"
    if config.key_limit:
        return f". Rows beside `memory` have at most {config.key_limit - config.mem_len} tokens, for it knows no further distances"
    return f"; `score` with rows of {config.tgt_len + 1} does as `score_text`"


def _specs(structure):
    return {key: tf.TensorSpec(tensor.shape, tensor.dtype) for key, tensor in sorted(structure.items())}


def _bullets(title, entries):
    return f"## {title}\n\n" + "\n".join(f"- {key}: {value}" for key, value in entries.items()) if entries else ""


def _vocabulary(vocabulary):
    if vocabulary is None:
        return "## Vocabulary\n\nNone is in the export: tokens are ids."
    needs = ""
    if vocabulary.kind == "subword":
        from tensorflow_text import __version__ as version

        needs = f" It needs the operations of tensorflow-text {version}, which a server must have been built with."
    return (f"## Vocabulary\n\nOf kind {vocabulary.kind}, {vocabulary.n_token:,} tokens.{needs} `score_text` gives the ids of a text. Texts are bytes of "
            'UTF-8; in JSON others are `{"b64": "..."}`, in base 64.')


def _signature(signature, inputs, outputs, text):
    rows = [f"| {side} | `{key}` | {spec.dtype.name} | {_shape(spec)} |"
            for side, specs in (("in", inputs), ("out", outputs)) for key, spec in specs.items()]
    return "\n".join([f"### {signature}", "", text, "", "| | tensor | type | shape |", "|---|---|---|---|", *rows])


def _shape(spec):
    return f"({', '.join('B' if axis == 0 else '?' if size is None else str(size) for axis, size in enumerate(spec.shape))}{',' * (len(spec.shape) == 1)})"


def _bytes(inputs, outputs, documented):
    """Returns the section about the sizes of messages, each for one row with one token and as much memory as there is."""
    rows, largest = [], 0
    for signature in documented:
        sizes = [sum(map(_size, specs.values())) for specs in (inputs[signature], outputs[signature])]
        if "memory" in inputs[signature]:
            memory = outputs[signature]["memory"]
            sizes[0] += _size(memory) - _size(inputs[signature]["memory"])
        rows.append(f"| {signature} | {sizes[0]:,} | {sizes[1]:,} |")
        largest = max(largest, *sizes)
    return "\n".join([
        "## Bytes of a call", "", "For one row of one token (a text counts as 8 bytes), with a full memory:", "", "| | request | answer |",
        "|---|---|---|", *rows, "", f"A gRPC client takes in 4 MiB by default; for B rows set `grpc.max_receive_message_length` to at least "
        f"B x {largest + _ONE_ROW:,}."])


def _size(spec):
    width = 8 if spec.dtype == tf.string else spec.dtype.size
    return width * math.prod(size or 1 for size in spec.shape)


def _calls(name, signature, inputs, outputs):
    values = {key: _EXAMPLE[key] for key in inputs}
    limit = max(_DEFAULT_LIMIT, sum(map(_size, outputs.values())) + _ONE_ROW)
    lines = [f'request.inputs["{key}"].CopyFrom(tf.make_tensor_proto({json.dumps(values[key])}, tf.{spec.dtype.name}))'
             for key, spec in inputs.items()]
    body = json.dumps({"signature_name": signature, "inputs": values})
    return "\n".join([
        "## Calls", "", "REST, where the server has `--rest_api_port=8501`:", "", "```sh",
        f"curl -d '{body}' http://localhost:8501/v1/models/{name}:predict", "```", "",
        "gRPC, with `pip install tensorflow-serving-api`, where the server has `--port=8500`:", "", "```python",
        "import grpc", "import tensorflow as tf", "from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc", "",
        "request = predict_pb2.PredictRequest()", f'request.model_spec.name = "{name}"', f'request.model_spec.signature_name = "{signature}"', *lines,
        f'channel = grpc.insecure_channel("localhost:8500", options=[("grpc.max_receive_message_length", {limit})])',
        "answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, 60.0)",
        f'print(tf.make_ndarray(answer.outputs["{next(iter(outputs))}"]))', "```"])


def _batching(name):
    return "\n".join([
        "## Batching", "", "Rows are independent of each other, so that a server may put requests of several clients together:", "", "```sh",
        f"tensorflow_model_server --port=8500 --rest_api_port=8501 --model_name={name} --model_base_path=FOLDER \\",
        "    --enable_batching --batching_parameters_file=batching.txt", "```", "", "with, in `batching.txt`,", "", "```",
        "max_batch_size { value: 32 }", "batch_timeout_micros { value: 2000 }", "num_batch_threads { value: 4 }",
        "pad_variable_length_inputs: true", "```", "",
        "FOLDER is an absolute path, the one that holds the versions. What is padded to a longer request of the same batch comes "
        "back as long; cut it at the row's own length. A request that fails, such as one with an id that is no token, fails those of its batch."])
