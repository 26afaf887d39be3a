"""Samples text from a trained model: `python -m txl_tf.generate --model_dir=runs/mine --prompt="..."`."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags, logging

from txl_tf.flags import check_no_arguments
from txl_tf.inference.sampling import sample_tokens
from txl_tf.model_folder import load_model_and_vocabulary


_BEFORE = 8  # tokens of the prompt that tell how the first new one is joined to them


def main(argv):
    logging.set_verbosity(logging.WARNING)
    settings = flags.FLAGS
    try:
        check_no_arguments(argv)
        prompt = _prompt(settings.prompt, settings.prompt_file)
        model, vocabulary = load_model_and_vocabulary(settings.model_dir)
        prompt_ids = vocabulary.encode(prompt)
        tokens = sample_tokens(model, prompt_ids, settings.max_new_tokens, settings.top_k, settings.temperature,
                               settings.seed, settings.mem_len)
    except (ValueError, OSError) as error:
        sys.exit(f"txl_tf.generate: {error}")
    try:
        print(prompt, end="", flush=True)
        _show(prompt_ids, tokens, vocabulary)
    except (BrokenPipeError, KeyboardInterrupt):  # the reader, or the user, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prompt(prompt, prompt_file):
    if (prompt is None) == (prompt_file is None):
        raise ValueError("Exactly one of --prompt and --prompt_file must be given. Received: "
                         f"prompt={prompt}, prompt_file={prompt_file}")
    if prompt_file is not None:
        try:
            with open(prompt_file, encoding="utf-8") as file:
                prompt = file.read()
        except (OSError, ValueError) as error:
            raise ValueError(f"prompt_file must be a UTF-8 file that can be read ({error}). Received: prompt_file={prompt_file}") from error
    if not prompt:
        raise ValueError(f"The prompt must not be empty. Received: prompt={prompt!r}, prompt_file={prompt_file}")
    return prompt


def _show(prompt_ids, tokens, vocabulary):
    """Prints tokens as they come; those that do not yet spell a character wait for the next."""
    ids = [int(number) for number in prompt_ids[-_BEFORE:]]  # those that are shown, the last of them, then those that are not
    shown = len(ids)
    for token in tokens:
        ids.append(int(token[0]))
        text = vocabulary.decode(ids)
        if not text.endswith("\ufffd") or len(ids) - shown > 3:
            print(text[len(vocabulary.decode(ids[:shown])):], end="", flush=True)
            ids = ids[shown:]
            shown = len(ids)
    print(vocabulary.decode(ids)[len(vocabulary.decode(ids[:shown])):])


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "folder of a run or a saved model", required=True)
    flags.DEFINE_string("prompt", None, "text to go on from")
    flags.DEFINE_string("prompt_file", None, "UTF-8 file with the text to go on from")
    flags.DEFINE_integer("max_new_tokens", 500, "tokens to sample")
    flags.DEFINE_integer("top_k", 40, "draw among the k likeliest tokens; 0: among all")
    flags.DEFINE_float("temperature", 1.0, "divides the log-probabilities; 0: take the likeliest token")
    flags.DEFINE_integer("seed", None, "the same seed gives the same text; unset: another each time")
    flags.DEFINE_integer("mem_len", None, "slots of the memory; unset: the model's")
    app.run(main)
