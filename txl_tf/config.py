"""The settings of a model, of its training and of its data, each checked when it is made."""

import dataclasses
import numbers
import typing

INITS = ("normal", "uniform")
MEMORY_STARTS = ("empty", "zeros")
PRECISIONS = ("float32", "mixed_bfloat16")


def setting(default, help_text):
    """Returns a dataclass field with its default and the sentence that documents it, here and as a flag's help."""
    return dataclasses.field(default=default, metadata={"help": help_text})


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The shape of a Transformer-XL language model. Names are those of the original code's flags.

    Raises:
        ValueError: if a value can't be used; the sentence names the field and what was received.
    """

    n_token: int = setting(dataclasses.MISSING, "vocabulary size V")
    n_layer: int = setting(4, "layers L")
    d_model: int = setting(192, "width D of the hidden states")
    d_embed: int | None = setting(None, "width of the embedding table's rows; unset: d_model")
    n_head: int = setting(3, "attention heads N")
    d_head: int | None = setting(None, "width H of a head; unset: d_model / n_head")
    d_inner: int | None = setting(None, "hidden width of the feed-forward layer; unset: 4 x d_model")
    dropout: float = setting(0.0, "dropout rate of embeddings, positions, attention and feed-forward outputs")
    dropatt: float = setting(0.0, "dropout rate of the attention weights")
    tgt_len: int = setting(64, "tokens T of a training segment")
    mem_len: int = setting(64, "slots M of the memory in training")
    same_length: bool = setting(False, "give every query mem_len + 1 keys instead of all earlier ones")
    clamp_len: int = setting(-1, "largest distance with a position of its own; 0 or less: no limit")
    untie_r: bool = setting(False, "give every layer its own biases u and v")
    cutoffs: tuple[int, ...] = setting((), "ids at which the clusters of an adaptive vocabulary begin; empty: one table")
    div_val: int = setting(1, "factor by which the embedding narrows from cluster to cluster")
    tie_weight: bool = setting(True, "share the embedding table with the softmax")
    proj_share_all_but_first: bool = setting(False, "share all projections but the first with the softmax")
    proj_same_dim: bool = setting(True, "project also where a cluster is as wide as the model (with div_val above 1)")
    init: str = setting("normal", f"distribution of the initial weights, one of {', '.join(INITS)}")
    init_std: float = setting(0.02, "standard deviation of the initial weights (init=normal)")
    proj_init_std: float = setting(0.01, "standard deviation of the initial projections (init=normal)")
    init_range: float = setting(0.1, "bound of the initial weights (init=uniform)")
    layer_norm_epsilon: float = setting(1e-12, "added to the variance in layer normalisation")
    memory_start: str = setting("empty", "memory before the first token: empty, or zeros (the original TensorFlow code's)")
    attention: str = setting("relative", "how tokens look at each other, a name in txl_tf.attention.ATTENTIONS")

    def __post_init__(self):
        _set_types(self)
        _at_least(self, 1, "n_token", "n_layer", "d_model", "n_head", "tgt_len", "div_val")
        _fill(self, d_embed=self.d_model, d_head=max(1, self.d_model // self.n_head), d_inner=4 * self.d_model)
        _at_least(self, 1, "d_embed", "d_head", "d_inner")
        _at_least(self, 0, "mem_len", "init_std", "proj_init_std", "init_range", "layer_norm_epsilon")
        _within(self, 0.0, 1.0, "dropout", "dropatt")
        _one_of(self, INITS, "init")
        _one_of(self, MEMORY_STARTS, "memory_start")
        check_cutoffs(self.cutoffs, self.n_token)
        if self.proj_share_all_but_first and not self.tie_weight:
            raise ValueError("proj_share_all_but_first needs tie_weight. Received: proj_share_all_but_first=True, tie_weight=False")
        if self.cutoffs and self.d_embed // self.div_val ** len(self.cutoffs) < 1:
            raise ValueError("d_embed must be at least div_val to the power of the number of cutoffs. Received: "
                             f"d_embed={self.d_embed}, div_val={self.div_val}, cutoffs={self.cutoffs}")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a model is trained and evaluated.

    Raises:
        ValueError: if a value can't be used; the sentence names the field and what was received.
    """

    train_steps: int = setting(2000, "weight updates in all")
    learning_rate: float = setting(3e-3, "highest learning rate")
    warmup_steps: int = setting(100, "updates over which the learning rate rises linearly from 0")
    min_lr_ratio: float = setting(0.004, "learning rate at the end as a share of the highest (cosine decay)")
    clip: float = setting(0.25, "largest global norm of the gradients")
    model_dir: str = setting("runs/txl", "folder of the run: configuration, vocabulary, weights, checkpoints, TensorBoard; unset on "
                             "the command line: runs/NAME for a data_dir of that name")
    iterations: int = setting(50, "updates between two progress reports")
    save_steps: int = setting(250, "updates between two checkpoints")
    seed: int = setting(1, "seed of the initial weights, of dropout and of the sample")
    precision: str = setting("float32", f"arithmetic of the layers, one of {', '.join(PRECISIONS)}")
    jit_compile: bool = setting(False, "compile the training step with XLA")
    eval_tgt_len: int = setting(128, "tokens of a segment in evaluation")
    eval_mem_len: int | None = setting(None, "slots of the memory in evaluation and sampling; unset: 4 x mem_len")
    eval_clamp_len: int | None = setting(None, "clamp_len in evaluation and sampling; unset: clamp_len")
    eval_same_length: bool | None = setting(None, "same_length in evaluation and sampling; unset: same_length")

    def __post_init__(self):
        _set_types(self)
        _at_least(self, 1, "train_steps", "iterations", "save_steps", "eval_tgt_len")
        _at_least(self, 0, "warmup_steps", "seed")
        if self.seed >= 2 ** 32:
            raise ValueError(f"seed must be below 2**32. Received: seed={self.seed}")
        _above(self, 0.0, "learning_rate", "clip")
        _within(self, 0.0, 1.0, "min_lr_ratio", open_end=False)
        _one_of(self, PRECISIONS, "precision")
        if not self.model_dir:
            raise ValueError(f"model_dir must name a folder. Received: model_dir={self.model_dir}")
        if self.eval_mem_len is not None:
            _at_least(self, 0, "eval_mem_len")
        if self.warmup_steps > self.train_steps:
            raise ValueError("warmup_steps must not exceed train_steps. Received: "
                             f"warmup_steps={self.warmup_steps}, train_steps={self.train_steps}")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What a model is trained on.

    Raises:
        ValueError: if a value can't be used; the sentence names the field and what was received.
    """

    dataset: str | None = setting(None, "name in data_utils.datasets.DATASETS, or tfds:NAME; unset: text with data_dir, stdlib without")
    data_dir: str | None = setting(None, "folder of the text and of what is made of it; unset: data/DATASET")
    train_batch_size: int = setting(32, "rows B of a training batch")
    eval_batch_size: int = setting(16, "rows B of an evaluation batch")
    train_files: str | None = setting(None, "text of the train split elsewhere: paths or patterns, .gz and gs:// too, comma-separated")
    valid_files: str | None = setting(None, "text of the valid split elsewhere")
    test_files: str | None = setting(None, "text of the test split elsewhere")
    tfds_splits: str | None = setting(None, "the splits of tfds:NAME, such as train[:90%],train[90%:95%],train[95%:]")
    vocabulary: str | None = setting(None, "kind of the vocabulary: byte, char, word or subword; unset: that of the dataset")
    vocab_file: str | None = setting(None, "a vocabulary that exists: list of words, SentencePiece .model, vocabulary.json, cache.pkl")
    vocab_size: int | None = setting(None, "ids of a vocabulary that is made: at most (word, char), exactly (subword)")
    min_freq: int | None = setting(None, "how often a word or character must occur to be in the vocabulary")
    lower_case: bool | None = setting(None, "whether words are lower-cased; unset: as the dataset has it")
    num_passes: int = setting(1, "passes over the train split in its records, from random places if there are several")
    num_shuffle: int = setting(4, "shuffles of each shard of lm1b in its records")
    shuffle_shards: bool = setting(False, "whether the shards of lm1b come in random order")
    shuffle_seed: int = setting(123456, "seed of passes and shuffles")
    num_procs: int = setting(2, "threads that prepare text")

    def __post_init__(self):
        _set_types(self)
        _at_least(self, 1, "train_batch_size", "eval_batch_size", "num_passes", "num_shuffle", "num_procs")
        _fill(self, dataset="text" if self.data_dir else "stdlib")
        _fill(self, data_dir=f"data/{self.dataset}")


def check_cutoffs(cutoffs, n_token):
    """Raises ValueError unless cutoffs rise strictly between 0 and n_token."""
    bounds = (0, *cutoffs, n_token)
    if any(a >= b for a, b in zip(bounds, bounds[1:])):
        raise ValueError("cutoffs must rise strictly, each above 0 and below n_token. Received: "
                         f"cutoffs={tuple(cutoffs)}, n_token={n_token}")


def _set_types(config):
    """Makes every value a plain Python one of its field's type, numpy's numbers too, or raises ValueError."""
    for name, annotation in typing.get_type_hints(type(config)).items():
        value, kinds = getattr(config, name), typing.get_args(annotation) or (annotation,)
        if typing.get_origin(annotation) is tuple:
            if isinstance(value, str) or not hasattr(value, "__iter__"):
                raise ValueError(f"{name} must be a sequence. Received: {name}={value!r}")
            value = tuple(_as_type(name, item, (int,)) for item in value)
        else:
            value = _as_type(name, value, kinds)
        object.__setattr__(config, name, value)


def _as_type(name, value, kinds):
    if type(value) in kinds:
        return value
    if not isinstance(value, bool):
        if int in kinds and isinstance(value, numbers.Integral):
            return int(value)
        if float in kinds and isinstance(value, numbers.Real):
            return float(value)
    expected = " or ".join("unset" if kind is type(None) else kind.__name__ for kind in kinds)
    raise ValueError(f"{name} must be {expected}. Received: {name}={value!r}")


def _fill(config, **defaults):
    for name, value in defaults.items():
        if getattr(config, name) is None:
            object.__setattr__(config, name, value)


def _at_least(config, least, *names):
    for name in names:
        if not least <= getattr(config, name) < float("inf"):
            raise ValueError(f"{name} must be at least {least} and finite. Received: {name}={getattr(config, name)}")


def _above(config, bound, *names):
    for name in names:
        if not bound < getattr(config, name) < float("inf"):
            raise ValueError(f"{name} must be above {bound:g} and finite. Received: {name}={getattr(config, name)}")


def _within(config, low, high, *names, open_end=True):
    for name in names:
        value = getattr(config, name)
        if not (low <= value < high or (value == high and not open_end)):
            raise ValueError(f"{name} must be at least {low:g} and {'below' if open_end else 'at most'} {high:g}. "
                             f"Received: {name}={value}")


def _one_of(config, values, name):
    if getattr(config, name) not in values:
        raise ValueError(f"{name} must be one of {', '.join(values)}. Received: {name}={getattr(config, name)}")
