"""The best score over attention lengths: `python -m txl_tf.analysis.attention_length --model_dir=... --data_dir=... --mem_len=64,128`."""

import tensorflow as tf
from absl import app, flags, logging

from data_utils.atomic_files import write_json
from txl_tf.analysis.model_corpus import open_corpus_of
from txl_tf.config import EVAL_TGT_LEN, SPLITS
from txl_tf.faults import one_sentence
from txl_tf.flags import check_folder_of, check_no_arguments, integers
from txl_tf.inference.evaluation import evaluate, evaluation_model
from txl_tf.inference.scoring import check_sizes
from txl_tf.metrics import in_unit
from txl_tf.model_folder import load_model_and_vocabulary

DIGITS = {"ppl": 2, "bpc": 3}  # that are printed, and that decide whether two values are equal


def sweep(model, segments_of, mem_lens, vocabulary_kind):
    """Returns an iterator of scores, one for each memory length, the shortest first; each is computed when it is asked for.

    Args:
        model: a TransformerXLLM.
        segments_of: function without arguments that returns the segments from the first one on, as `evaluate` takes them.
        mem_lens: slots of the memory, at least one number.
        vocabulary_kind: "byte" or "char" for bits per character, others for perplexity.

    Returns:
        {"mem_len", "nll": mean in nats, "tokens": number scored, "ppl" or "bpc": value} for each length.

    Raises:
        ValueError: if there is no length, or one is no integer of at least 0.
    """
    if not mem_lens:
        raise ValueError("mem_len must be at least one number. Received: none")
    for mem_len in mem_lens:
        check_sizes(mem_len=mem_len)
    return (_score(model, segments_of(), mem_len, vocabulary_kind) for mem_len in sorted(set(mem_lens)))


def best_of(scores):
    """Returns (unit, best value, the shortest mem_len that reaches it) of what `sweep` gives: Table 6 of Dai et al. 2019.

    A value reaches another if both are equal when rounded to the digits that are printed.
    """
    unit, = DIGITS.keys() & scores[0].keys()
    rounded = {score["mem_len"]: round(score[unit], DIGITS[unit]) for score in scores}
    best = min(rounded.values())
    return unit, best, min(mem_len for mem_len, value in rounded.items() if value == best)


def _score(model, segments, mem_len, vocabulary_kind):
    nll, tokens = evaluate(model, segments, mem_len)
    value, unit = in_unit(nll, vocabulary_kind)
    return {"mem_len": mem_len, "nll": nll, "tokens": tokens, unit: value}


def main(argv):
    logging.set_verbosity(logging.WARNING)
    tf.get_logger().setLevel("ERROR")  # every length is a program of its own, of which TensorFlow would warn
    settings = flags.FLAGS
    with one_sentence("txl_tf.analysis.attention_length", ValueError, OSError):
        check_no_arguments(argv)
        check_sizes(tgt_len=settings.tgt_len)
        check_folder_of("json_file", settings.json_file)
        mem_lens = integers("mem_len", settings.mem_len)
        model, corpus, tgt_len = _opened(settings)
        segments = corpus.dataset(settings.split, tgt_len)
        scores = sweep(model, lambda: segments, mem_lens, corpus.vocabulary.kind)
        scores = list(_printed(scores, tgt_len, model.config.same_length))
    unit, best, mem_len = best_of(scores)
    print(f"{unit.upper()} best  {best:,.{DIGITS[unit]}f}\nAttn Len  {mem_len:,}")
    print(f"Attn Len: the shortest memory, the paper's attention length, whose {unit} equals the best to {DIGITS[unit]} decimals. A token also "
          f"sees those before it in its segment of {tgt_len}.")
    if settings.json_file:
        chosen = {"split": settings.split, "tgt_len": tgt_len, "clamp_len": model.config.clamp_len,
                  "same_length": model.config.same_length}
        write_json(settings.json_file, {**chosen, "scores": scores, "unit": unit, "best": best, "attn_len": mem_len})


def _opened(settings):
    """Returns the model with the settings of evaluation, the corpus, whose vocabulary is the model's, and the tokens of a segment."""
    model, vocabulary = load_model_and_vocabulary(settings.model_dir)
    tgt_len, _ = model.config.evaluation_lengths(settings.tgt_len, 0)
    corpus = open_corpus_of(vocabulary, settings.dataset, settings.data_dir, tgt_len)
    return evaluation_model(model, clamp_len=settings.clamp_len, same_length=settings.same_length), corpus, tgt_len


def _printed(scores, tgt_len, same_length):
    """Yields the scores and prints each as it comes, below a head; "sees" is how many earlier tokens a token looks at."""
    for index, score in enumerate(scores):
        unit, = DIGITS.keys() & score.keys()
        if index == 0:
            print(f"{'Attn Len':>8}  {'sees':>15}  {'nll':>8}  {unit:>10}")
        sees = f"{score['mem_len']:,}" if same_length else f"{score['mem_len']:,} to {score['mem_len'] + tgt_len - 1:,}"
        print(f"{score['mem_len']:8,}  {sees:>15}  {score['nll']:8.4f}  {score[unit]:10,.{DIGITS[unit]}f}", flush=True)
        yield score


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "folder of a run or a saved model", required=True)
    flags.DEFINE_string("data_dir", None, "folder of the prepared data", required=True)
    flags.DEFINE_string("dataset", None, "name of the dataset; unset: what the folder was prepared for")
    flags.DEFINE_enum("split", "valid", SPLITS, "the split to score")
    flags.DEFINE_list("mem_len", None, "slots of the memory, several numbers separated by commas", required=True)
    flags.DEFINE_integer("tgt_len", None, f"tokens of a segment; unset: {EVAL_TGT_LEN}, for a Synthesizer those of its training")
    flags.DEFINE_integer("clamp_len", None, "largest distance with a position of its own; unset: the model's")
    flags.DEFINE_bool("same_length", None, "give every token mem_len + 1 keys; unset: the model's")
    flags.DEFINE_string("json_file", None, "file to write the scores to as JSON")
    app.run(main)
