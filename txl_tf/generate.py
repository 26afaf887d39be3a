"""Goes on from prompts with a trained model: `python -m txl_tf.generate --model_dir=runs/mine --prompt="..."`."""

import contextlib
import json
import secrets
import sys

from absl import app, flags, logging

from data_utils.detokenize import detokenize
from data_utils.tokenize import tokenize
from txl_tf.faults import one_sentence, say
from txl_tf.flags import check_no_arguments
from txl_tf.inference.beam_search import beam_search
from txl_tf.inference.sampling import check_length, sample_tokens
from txl_tf.inference.text_stream import TextStream
from txl_tf.model_folder import load_model_and_vocabulary

_SAMPLING = ("top_k", "top_p", "temperature", "repetition_penalty")  # arguments of sample_tokens; what is unset is its default
_MOST_NAMED = 10  # unknown words of the prompts


def main(argv):
    logging.set_verbosity(logging.WARNING)
    settings = flags.FLAGS
    with one_sentence("txl_tf.generate", ValueError, OSError):
        check_no_arguments(argv)
        prompts = _prompts(settings.prompt, settings.prompt_file)
        prompts = [tokenize(prompt) for prompt in prompts] if settings.tokenize else prompts
        _check_together(settings)
        model, vocabulary = load_model_and_vocabulary(settings.model_dir)
        output = _output(model, vocabulary, prompts, settings)
        _warn_of_unknown(vocabulary, prompts)
    with one_sentence("txl_tf.generate", OSError), contextlib.suppress(BrokenPipeError):  # the reader has had enough
        for text in output:
            say(text, end="")


def _prompts(prompts, prompt_file):
    if (prompts is None) == (prompt_file is None):
        raise ValueError("Exactly one of --prompt and --prompt_file must be given. Received: "
                         f"prompt={prompts}, prompt_file={prompt_file}")
    if prompt_file is not None:
        try:
            with open(prompt_file, encoding="utf-8", newline="") as file:
                prompts = [file.read()]
        except (OSError, ValueError) as error:
            raise ValueError(f"prompt_file must be a UTF-8 file that can be read ({error}). Received: prompt_file={prompt_file}") from error
    if not all(prompts):
        raise ValueError(f"A prompt must not be empty. Received: prompt={prompts}, prompt_file={prompt_file}")
    return prompts


def _check_together(settings):
    """Raises ValueError where a setting contradicts another; the values of one by itself are left to the library."""
    check_length("num_beams", settings.num_beams, 0)
    if settings.num_samples is not None:
        check_length("num_samples", settings.num_samples, 1)
    if settings.num_beams:
        for name in (*_SAMPLING, "seed", "num_samples", "stop"):
            if getattr(settings, name) is not None:
                raise ValueError(f"num_beams must come without {name}, which is for sampling. Received: "
                                 f"num_beams={settings.num_beams}, {name}={getattr(settings, name)}")
    elif settings.length_penalty is not None:
        raise ValueError("length_penalty must come with num_beams, for it is for beam search. Received: "
                         f"length_penalty={settings.length_penalty}, num_beams={settings.num_beams}")
    for name, likeliest in (("temperature", 0), ("top_k", 1)):
        if getattr(settings, name) == likeliest and (settings.num_samples or 1) > 1:
            raise ValueError("num_samples must be 1 where the likeliest token is taken, for all would be the same. Received: "
                             f"num_samples={settings.num_samples}, {name}={getattr(settings, name)}")
    if settings.stop is not None and not all(settings.stop):
        raise ValueError(f"stop must not be empty. Received: stop={settings.stop}")


def _output(model, vocabulary, prompts, settings):
    """Returns an iterator of the parts of what is printed; what can't be used is refused at once."""
    prompt_ids = [_encoded(vocabulary, prompt) for prompt in prompts]
    whole_words = vocabulary.kind == "word"
    shown = detokenize if (whole_words if settings.detokenize is None else settings.detokenize) else None

    def stream(row):
        return TextStream(vocabulary.decode, prompt_ids[row], prompts[row], settings.stop or (), shown, whole_words)

    chosen = {name: getattr(settings, name) for name in _SAMPLING if getattr(settings, name) is not None}
    chosen |= {"mem_len": settings.mem_len, "stop_tokens": [_stop_token(vocabulary, text) for text in settings.stop_token or ()]}
    if settings.num_beams:
        if settings.length_penalty is not None:
            chosen["length_penalty"] = settings.length_penalty
        searched = beam_search(model, prompt_ids, settings.max_new_tokens, settings.num_beams, **chosen)
        found = _beams(prompts, prompt_ids, searched, stream, chosen["stop_tokens"])
    else:
        samples = settings.num_samples or 1
        seed = secrets.randbits(31) if settings.seed is None else settings.seed
        rows = [row for row in range(len(prompts)) for _ in range(samples)]
        tokens = sample_tokens(model, [prompt_ids[row] for row in rows], settings.max_new_tokens, seed=seed, **chosen)
        if settings.seed is None and not settings.json:
            print(f"--seed={seed}", file=sys.stderr)  # with it, the text can be made again
        if len(rows) == 1 and not settings.json:
            return _streamed(prompts[0], tokens, stream(0), chosen["stop_tokens"], shown)
        found = _samples(prompts, rows, seed, _complete(tokens, list(map(stream, rows)), chosen["stop_tokens"]))
    return (f"{json.dumps(continuation)}\n" for _, continuation in found) if settings.json else _headed(found, shown)


def _encoded(vocabulary, prompt):
    ids = vocabulary.encode(prompt)
    if len(ids) == 0:
        raise ValueError(f"A prompt must hold at least one token of the vocabulary. Received: prompt={prompt!r}")
    return ids


def _warn_of_unknown(vocabulary, prompts):
    """Says on stderr which words, or characters, of the prompts the model does not know."""
    if vocabulary.unknown_id is None:
        return
    shown = vocabulary.decode([vocabulary.unknown_id])
    parts = dict.fromkeys(part for prompt in prompts for part in (prompt.split() if vocabulary.kind == "word" else prompt))
    unknown = [part for part in parts if part != shown and vocabulary.unknown_id in vocabulary.encode(part)]
    if unknown:
        more = f" and {len(unknown) - _MOST_NAMED:,} more" if len(unknown) > _MOST_NAMED else ""
        print(f"not in the vocabulary, so read as {shown}: {' '.join(unknown[:_MOST_NAMED])}{more}", file=sys.stderr)


def _stop_token(vocabulary, text):
    try:
        return vocabulary.token_id(text)
    except ValueError as error:
        raise ValueError(f"stop_token must be exactly one token of the vocabulary. Received: stop_token={text!r}") from error


def _streamed(prompt, tokens, stream, stop_tokens, shown):
    """Yields the prompt and its only continuation as it is sampled."""
    yield shown(prompt) if shown else prompt
    for token in tokens:
        if token[0] in stop_tokens:
            break
        yield stream.feed(token[0])
        if stream.ended:
            break
    yield f"{stream.finish()}\n"


def _complete(tokens, streams, stop_tokens):
    """Yields (text, tokens) of every row, in their order, each as soon as it is complete; a stop token is in no text."""
    rows, done = [[] for _ in streams], 0
    for step in tokens:
        for stream, row, token in zip(streams, rows, step.tolist(), strict=True):
            if not stream.ended:
                row.append(token)
                stream.finish() if token in stop_tokens else stream.feed(token)
        while done < len(rows) and streams[done].ended:
            yield streams[done].text, rows[done]
            done += 1
        if done == len(rows):
            return
    for stream, row in zip(streams[done:], rows[done:]):
        stream.finish()
        yield stream.text, row


def _samples(prompts, rows, seed, complete):
    """Yields (which one it is, continuation) of every sample; the rows of a batch name their prompts."""
    samples = len(rows) // len(prompts)
    for number, (row, (text, tokens)) in enumerate(zip(rows, complete)):
        yield (f"prompt {row + 1} of {len(prompts)}, sample {number % samples + 1} of {samples}, seed {seed + number}",
               {"prompt": prompts[row], "text": text, "tokens": tokens, "seed": seed + number})


def _beams(prompts, prompt_ids, searched, stream, stop_tokens):
    """Yields (which one it is, continuation) of every beam, those of a prompt best first."""
    for row, (prompt, ids, found) in enumerate(zip(prompts, prompt_ids, searched, strict=True)):
        for number, (tokens, score) in enumerate(found):
            text, tokens = next(_complete(tokens[len(ids):, None], [stream(row)], stop_tokens))
            yield (f"prompt {row + 1} of {len(prompts)}, beam {number + 1} of {len(found)}, score {score:.3f}",
                   {"prompt": prompt, "text": text, "tokens": tokens, "score": score})


def _headed(found, shown):
    for place, continuation in found:
        prompt = continuation["prompt"]
        yield f"--- {place} ---\n{shown(prompt) if shown else prompt}{continuation['text']}\n"


def define_flags():
    flags.DEFINE_string("model_dir", None, "folder of a run or a saved model", required=True)
    flags.DEFINE_multi_string("prompt", None, "text to go on from; may be given several times")
    flags.DEFINE_string("prompt_file", None, "UTF-8 file with the text to go on from")
    flags.DEFINE_integer("max_new_tokens", 500, "tokens to add at most")
    flags.DEFINE_integer("num_samples", None, "continuations of each prompt; unset: 1")
    flags.DEFINE_integer("top_k", None, "draw among the k likeliest tokens; 0: among all; unset: 40")
    flags.DEFINE_float("top_p", None, "of these, draw among the likeliest whose probabilities reach this sum; unset: 1, all")
    flags.DEFINE_float("temperature", None, "divides the log-probabilities; 0: take the likeliest token; unset: 1")
    flags.DEFINE_float("repetition_penalty", None, "multiplies the log-probabilities of tokens that the text holds already; unset: 1, none")
    flags.DEFINE_integer("seed", None, "the same seed gives the same text; continuation r is drawn with seed + r; unset: a new one")
    flags.DEFINE_multi_string("stop", None, "text at which a sampled continuation ends, not shown itself; may be given several times")
    flags.DEFINE_multi_string("stop_token", None, "a token, such as <eos>, that ends a continuation; may be given several times")
    flags.DEFINE_integer("num_beams", 0, "continuations that a beam search keeps of each prompt; 0: sampling")
    flags.DEFINE_float("length_penalty", None, "power of a beam's length by which its score is divided; unset: 1")
    flags.DEFINE_integer("mem_len", None, "slots of the memory; unset: the model's")
    flags.DEFINE_bool("json", False, "print a JSON object a line for every continuation: prompt, text, tokens, and seed or score")
    flags.DEFINE_bool("tokenize", False, "write the prompt as WikiText is: words, signs and numbers apart")
    flags.DEFINE_bool("detokenize", None, "leave out blanks that only keep tokens apart; unset: if tokens are words")


if __name__ == "__main__":
    define_flags()
    app.run(main)
