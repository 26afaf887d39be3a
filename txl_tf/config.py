"""The settings of a model, of its training and of its data, each checked when it is made."""

import dataclasses
import os

from txl_tf.config_checks import above, at_least, fill, named, one_of, refuse_if, set_types, those_set, within

INITS = ("normal", "uniform")
MEMORY_STARTS = ("empty", "zeros")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
CLIP_SCOPES = ("global", "replica")
SPLITS = ("train", "valid", "test")
EVAL_TGT_LEN = 128
ATTENTIONS = ("relative", "shaw", "absolute", "dot_product", "dense", "random", "random_fixed", "factorized_dense", "factorized_random",
              "mixture")
SYNTHESIZERS = ("dense", "random", "random_fixed", "factorized_dense", "factorized_random")  # have logits for max_length keys
KEY_INDICES = ("position", "distance")
MIXTURE_WEIGHTINGS = ("softmax", "sum", "sigmoid")
DENSE_FORMS = ("two_layer", "linear", "bottleneck", "conv", "conv_bottleneck", "glu", "query")
FEED_FORWARDS = ("dense", "conv_relu")


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
    same_length_extra: bool = setting(True, "whether same_length gives mem_len + 1 keys, or mem_len as PyTorch code and Hugging Face do")
    clamp_len: int = setting(-1, "largest distance with a position of its own; 0 or -1: no limit")
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
    pre_lnorm: bool = setting(False, "normalise what attention and feed-forward read, instead of each sum after them")
    memory_start: str = setting("empty", "memory before the first token: empty, or zeros (the original TensorFlow code's)")
    attention: str = setting("relative", f"how tokens look at each other, one of {', '.join(ATTENTIONS)}")
    mixture_of: tuple[str, ...] = setting((), "what attention=mixture mixes, such as dense,dot_product")
    mixture_weighting: str = setting("softmax", f"weights of a mixture, one of {', '.join(MIXTURE_WEIGHTINGS)}")
    max_length: int | None = setting(None, "keys for which a Synthesizer has logits, and distances for which shaw has vectors; unset: "
                                     "tgt_len + mem_len")
    key_index: str | None = setting(None, "what a Synthesizer's logits belong to, position (place in the text, needs mem_len=0) or distance; "
                                    "unset: distance with a memory, position without")
    dense_form: str = setting("two_layer", f"how attention=dense computes logits, one of {', '.join(DENSE_FORMS)}")
    factor_rank: int = setting(8, "rank of the product of attention=factorized_random")
    absolute_positions: bool | None = setting(None, "add the sinusoid of its place to a token's embedding (needs mem_len=0); unset: with "
                                              "attention=absolute")
    feed_forward: str = setting("dense", f"feed-forward layer, one of {', '.join(FEED_FORWARDS)} (a convolution over 3 tokens)")

    def __post_init__(self):
        set_types(self)
        at_least(self, 1, "n_token", "n_layer", "d_model", "n_head", "tgt_len", "div_val")
        fill(self, d_embed=self.d_model, d_head=max(1, self.d_model // self.n_head), d_inner=4 * self.d_model)
        at_least(self, 1, "d_embed", "d_head", "d_inner")
        at_least(self, -1, "clamp_len")
        at_least(self, 0, "mem_len", "init_std", "proj_init_std", "init_range", "layer_norm_epsilon")
        within(self, 0.0, 1.0, "dropout", "dropatt")
        one_of(self, INITS, "init")
        one_of(self, MEMORY_STARTS, "memory_start")
        _check_attention(self)
        check_cutoffs(self.cutoffs, self.n_token)
        if self.proj_share_all_but_first and not self.tie_weight:
            raise ValueError("proj_share_all_but_first needs tie_weight. Received: proj_share_all_but_first=True, tie_weight=False")
        if self.cutoffs and self.d_embed // self.div_val ** len(self.cutoffs) < 1:
            raise ValueError("d_embed must be at least div_val to the power of the number of cutoffs. Received: "
                             f"d_embed={self.d_embed}, div_val={self.div_val}, cutoffs={self.cutoffs}")

    @property
    def attentions(self):
        """The names of the ways of attention that are used, of a mixture those that it mixes."""
        return self.mixture_of if self.attention == "mixture" else (self.attention,)

    @property
    def attention_settings(self):
        """{name: value} of the settings that only some ways of attention take."""
        names = ("mixture_of", "mixture_weighting", "max_length", "key_index", "dense_form", "factor_rank")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def window(self):
        """Tokens of the longest text whose places the model knows; None: it goes by distances, and a text may be of any length."""
        if not (self.absolute_positions or self.key_index == "position"):
            return None
        return self.max_length if self.key_index else self.tgt_len

    @property
    def key_limit(self):
        """The largest number of keys, memory and segment together, whose distances the model knows; None: any."""
        return self.max_length if self.key_index == "distance" else None

    @property
    def memory_width(self):
        """Width E of what a memory holds of a token in each layer."""
        return 2 * self.d_model if self.feed_forward == "conv_relu" else self.d_model

    def evaluation_lengths(self, tgt_len=None, mem_len=None):
        """Returns (tokens of a segment, slots of the memory) for evaluation.

        Args:
            tgt_len, mem_len: None: 128 and 4 x mem_len, but those of training where each distance or place was learned by itself.

        Raises:
            ValueError: if the model has not learned so many distances or places.
        """
        as_trained = self.key_limit or self.window
        tgt_len = (self.tgt_len if as_trained else EVAL_TGT_LEN) if tgt_len is None else tgt_len
        mem_len = (self.mem_len if as_trained else 4 * self.mem_len) if mem_len is None else mem_len
        received = f"Received: mem_len={mem_len}, tgt_len={tgt_len}"
        if self.key_limit and mem_len + tgt_len > self.key_limit:
            raise ValueError(f"mem_len + tgt_len of evaluation must be at most max_length={self.key_limit}. {received}")
        if self.window and (mem_len or tgt_len > self.window):
            raise ValueError(f"mem_len and tgt_len of evaluation must be 0 and at most {self.window}, for the model knows the places of "
                             f"such texts. {received}")
        return tgt_len, mem_len


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How a model is trained and evaluated, and on which devices. do_eval_only=True makes do_train False and do_eval True.

    Attributes:
        evaluated_splits: the splits to score at the end, () for none.

    Raises:
        ValueError: if a value can't be used; the sentence names the field and what was received.
    """

    train_steps: int = setting(2000, "weight updates in all")
    learning_rate: float = setting(3e-3, "highest learning rate")
    warmup_steps: int = setting(100, "updates over which the learning rate rises linearly from 0")
    min_lr_ratio: float = setting(0.004, "learning rate at the end as a share of the highest (cosine decay)")
    clip: float = setting(0.25, "largest global norm of the gradients")
    clip_scope: str = setting("global", "global: gradients are averaged over the replicas, then clipped; replica: each replica's "
                              "share, the gradient of its loss / replicas, is clipped before the sum (the original's TPU program)")
    batch_chunk: int = setting(1, "equal parts of a replica's rows, worked on one after the other; their gradients add up")
    remat: bool = setting(False, "compute each layer's activations again in the backward pass: less memory, more time")
    model_dir: str = setting("runs/txl", "folder of the run: configuration, vocabulary, weights, checkpoints, TensorBoard; unset on "
                             "the command line: runs/NAME for a data_dir of that name")
    iterations: int = setting(50, "updates between two progress reports")
    save_steps: int = setting(250, "updates between two checkpoints")
    keep_checkpoints: int = setting(2, "the newest checkpoints that are kept")
    save_memory: bool = setting(True, "keep the memory in checkpoints; without it a run goes on with an empty one")
    seed: int = setting(1, "seed of the initial weights, of dropout and of the sample")
    precision: str = setting("float32", f"arithmetic of the layers, one of {', '.join(PRECISIONS)}")
    jit_compile: bool = setting(False, "compile the training step with XLA")
    do_train: bool = setting(True, "whether to train")
    do_eval: bool = setting(True, "score the valid split while training and eval_split at the end; without training: the newest checkpoint")
    do_test: bool = setting(False, "score the test split at the end too, whatever do_eval and eval_split say")
    do_eval_only: bool = setting(False, "no training: score each checkpoint kept from start_eval_steps on, and say which is best")
    start_eval_steps: int = setting(0, "updates of the first checkpoint that do_eval_only scores")
    eval_split: str | None = setting(None, f"the split to score at the end, one of {', '.join(SPLITS)}; unset: valid and test")
    eval_steps: int = setting(1000, "updates between two evaluations on the valid split while training; 0: only at the end")
    max_eval_batch: int = setting(-1, "batches of a split that are scored at most; -1: all")
    eval_ckpt_path: str | None = setting(None, "checkpoint to score without training, instead of those of model_dir")
    warm_start_path: str | None = setting(None, "checkpoint or model folder whose weights, never Adam's state, a new run in "
                                          "another model_dir starts with")
    eval_tgt_len: int | None = setting(None, f"tokens of a segment in evaluation; unset: {EVAL_TGT_LEN}, or tgt_len for a model that has learned "
                                       "each distance or place by itself. Without training, tgt_len on the command line gives it too")
    eval_mem_len: int | None = setting(None, "slots of the memory in evaluation and sampling; unset: 4 x mem_len, or mem_len for such a "
                                       "model. Without training, mem_len on the command line gives it too")
    eval_clamp_len: int | None = setting(None, "clamp_len in evaluation and sampling; unset: clamp_len")
    eval_same_length: bool | None = setting(None, "same_length in evaluation and sampling; unset: same_length")
    num_hosts: int = setting(1, "machines that train together")
    num_core_per_host: int | None = setting(None, "devices of each machine that are used; unset: all that are visible")
    use_tpu: bool | None = setting(None, "train on TPUs; unset: as the script does")
    tpu: str | None = setting(None, "name of the Cloud TPU, its grpc:// address, or local")
    tpu_zone: str | None = setting(None, "zone of the Cloud TPU; unset: asked of the machine")
    gcp_project: str | None = setting(None, "project of the Cloud TPU; unset: asked of the machine")
    master: str | None = setting(None, "grpc:// address of the TPU, instead of tpu")
    track_mean: bool = setting(False, "the original code's; changes nothing, for reports always show the mean loss since the last one")

    def __post_init__(self):
        set_types(self)
        if self.do_eval_only:
            object.__setattr__(self, "do_train", False)
            object.__setattr__(self, "do_eval", True)
        at_least(self, 1, "train_steps", "iterations", "save_steps", "keep_checkpoints", "batch_chunk", "num_hosts")
        at_least(self, 0, "warmup_steps", "seed", "eval_steps", "start_eval_steps")
        refuse_if(self, self.seed >= 2 ** 32, "seed must be below 2**32", "seed")
        above(self, 0.0, "learning_rate", "clip")
        within(self, 0.0, 1.0, "min_lr_ratio", open_end=False)
        one_of(self, PRECISIONS, "precision")
        one_of(self, CLIP_SCOPES, "clip_scope")
        at_least(self, 0, *those_set(self, "eval_mem_len"))
        at_least(self, -1, *those_set(self, "eval_clamp_len"))
        at_least(self, 1, *those_set(self, "num_core_per_host", "eval_tgt_len"))
        named(self, "model_dir", *those_set(self, "eval_ckpt_path", "warm_start_path"))
        refuse_if(self, self.warmup_steps > self.train_steps, "warmup_steps must not exceed train_steps", "warmup_steps", "train_steps")
        _check_evaluation(self)
        _check_warm_start(self)
        _check_tpu(self)

    @property
    def evaluated_splits(self):
        chosen = (self.eval_split,) if self.eval_split else ("valid", "test")
        splits = chosen if self.do_eval else ()
        return (*splits, "test") if self.do_test and "test" not in splits else splits


_PREPARATION = ("train_files", "valid_files", "test_files", "tfds_splits", "vocab_size", "min_freq", "lower_case", "num_passes",
                "num_shuffle", "shuffle_shards", "shuffle_seed")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What a model is trained on.

    Raises:
        ValueError: if a value can't be used; the sentence names the field and what was received.
    """

    dataset: str | None = setting(None, "name in data_utils.datasets.DATASETS, or tfds:NAME; unset: stdlib without data_dir, else as it was "
                                  "prepared or text")
    data_dir: str | None = setting(None, "folder of the text and of what is made of it; unset: data/DATASET")
    train_batch_size: int | None = setting(None, "rows B of a training batch on all hosts together; unset: as prepared, first 32")
    eval_batch_size: int | None = setting(None, "rows B of an evaluation batch; unset: as prepared, first 16")
    record_info_dir: str | None = setting(None, "folder of the record_info files that the original code wrote, whose TFRecords lie in "
                                          "data_dir; nothing is prepared then")
    corpus_info_path: str | None = setting(None, "corpus-info.json that the original code wrote: vocabulary size and cutoffs")
    train_files: str | None = setting(None, "text of the train split elsewhere: paths or patterns, .gz and gs:// too, comma-separated")
    valid_files: str | None = setting(None, "text of the valid split elsewhere")
    test_files: str | None = setting(None, "text of the test split elsewhere")
    tfds_splits: str | None = setting(None, "the splits of tfds:NAME, such as train[:90%],train[90%:95%],train[95%:]")
    vocabulary: str | None = setting(None, "kind of the vocabulary: byte, char, word or subword; unset: that of the dataset")
    vocab_file: str | None = setting(None, "a vocabulary that exists: list of words, SentencePiece .model, vocabulary.json, cache.pkl")
    vocab_size: int | None = setting(None, "ids of a vocabulary that is made: at most (word, char), exactly (subword)")
    min_freq: int | None = setting(None, "how often a word or character must occur to be in the vocabulary")
    lower_case: bool | None = setting(None, "whether words are lower-cased; unset: as the dataset has it")
    num_passes: int | None = setting(None, "passes over the train split in its records, from random places if there are several; "
                                     "unset: as prepared, first 1")
    num_shuffle: int | None = setting(None, "shuffles of each shard of lm1b in its records; unset: as prepared, first 4")
    shuffle_shards: bool | None = setting(None, "whether the shards of lm1b come in random order; unset: as prepared, first not")
    shuffle_seed: int | None = setting(None, "seed of passes and shuffles; unset: as prepared, first 123456")
    num_procs: int = setting(2, "threads that prepare text")

    def __post_init__(self):
        set_types(self)
        at_least(self, 1, "num_procs", *those_set(self, "train_batch_size", "eval_batch_size", "vocab_size", "min_freq", "num_passes",
                                              "num_shuffle"))
        opened = those_set(self, "record_info_dir", "corpus_info_path")
        named(self, *opened)
        prepared = those_set(self, *_PREPARATION)
        refuse_if(self, opened and prepared, f"{' and '.join(opened)} must not come with settings of preparation", *opened, *prepared)
        if self.data_dir is None:
            fill(self, dataset="stdlib")
        fill(self, data_dir=f"data/{self.dataset}")


def _check_attention(config):
    """Fills what attention leaves unset, or raises ValueError."""
    for name, values in (("attention", ATTENTIONS), ("mixture_weighting", MIXTURE_WEIGHTINGS), ("dense_form", DENSE_FORMS),
                         ("feed_forward", FEED_FORWARDS)):
        one_of(config, values, name)
    at_least(config, 1, "factor_rank")
    _check_mixture(config)
    for name, attention in (("dense_form", "dense"), ("factor_rank", "factorized_random"), ("mixture_weighting", "mixture")):
        _acts(config, (attention,), name, getattr(ModelConfig, name))
    _fill_for(config, SYNTHESIZERS, "key_index", "distance" if config.mem_len else "position")
    _fill_for(config, (*SYNTHESIZERS, "shaw"), "max_length", config.tgt_len + config.mem_len)
    if config.key_index is not None:
        one_of(config, KEY_INDICES, "key_index")
    at_least(config, 1, *those_set(config, "max_length"))
    fill(config, absolute_positions="absolute" in config.attentions)
    _check_lengths(config)
    shared = {"factorized_dense", *(["dense"] if config.dense_form != "query" else [])} & set(config.attentions)
    refuse_if(config, shared and config.d_model % config.n_head, f"n_head must divide d_model with {' and '.join(shared)}, whose heads share a token",
              "n_head", "d_model")


def _check_mixture(config):
    mixes = config.attention == "mixture"
    refuse_if(config, config.mixture_of and not mixes, "mixture_of must come with attention=mixture", "mixture_of", "attention")
    parts = tuple(name for name in ATTENTIONS if name != "mixture")
    refuse_if(config, mixes and (len(config.mixture_of) < 2 or not set(config.mixture_of) <= set(parts)),
              f"mixture_of must be at least two of {', '.join(parts)} with attention=mixture", "mixture_of")
    refuse_if(config, mixes and config.mixture_weighting == "sigmoid" and len(config.mixture_of) != 2,
              "mixture_of must be two with mixture_weighting=sigmoid", "mixture_of")


def _fill_for(config, attentions, name, default):
    """Fills a setting that only some ways of attention take, or raises ValueError where it is set and none of them is used."""
    if _acts(config, attentions, name, None):
        fill(config, **{name: default})


def _acts(config, attentions, name, unset):
    """Tells whether one of the ways of attention that take a setting is used; raises ValueError where it is set and none is."""
    acts = bool(set(attentions) & {config.attention, *config.attentions})
    refuse_if(config, not acts and getattr(config, name) != unset, f"{name} must come with attention one of {', '.join(attentions)}", name, "attention")
    return acts


def _check_lengths(config):
    refuse_if(config, "absolute" in config.attentions and not config.absolute_positions,
              "absolute_positions must be True with attention=absolute", "absolute_positions")
    for name in ("absolute_positions", "key_index"):
        refuse_if(config, config.mem_len and getattr(config, name) in (True, "position"),
                  f"{name} must come with mem_len=0 where it goes by places, for a memory moves on", name, "mem_len")
    places = "max_length" if config.key_index else "tgt_len"
    refuse_if(config, config.window == 1, f"{places} must be at least 2 where the model goes by places", places)
    refuse_if(config, config.key_index and config.max_length < config.tgt_len + config.mem_len,
              "max_length must be at least tgt_len + mem_len", "max_length", "tgt_len", "mem_len")


def check_together(train_config, data_config):
    """Raises ValueError if a TrainConfig can't train on the batches of a DataConfig on any machine."""
    devices = train_config.num_hosts * (train_config.num_core_per_host or 1)
    rows = data_config.train_batch_size
    if train_config.do_train and rows is not None and rows % (devices * train_config.batch_chunk):
        raise ValueError("train_batch_size must be a multiple of num_hosts x num_core_per_host x batch_chunk. Received: "
                         f"train_batch_size={rows}, num_hosts={train_config.num_hosts}, "
                         f"num_core_per_host={train_config.num_core_per_host}, batch_chunk={train_config.batch_chunk}")


def check_cutoffs(cutoffs, n_token):
    """Raises ValueError unless cutoffs rise strictly between 0 and n_token."""
    bounds = (0, *cutoffs, n_token)
    if any(a >= b for a, b in zip(bounds, bounds[1:])):
        raise ValueError("cutoffs must rise strictly, each above 0 and below n_token. Received: "
                         f"cutoffs={tuple(cutoffs)}, n_token={n_token}")


def _check_evaluation(config):
    refuse_if(config, config.max_eval_batch != -1 and config.max_eval_batch < 1, "max_eval_batch must be -1 or at least 1",
               "max_eval_batch")
    if config.eval_split is not None:
        one_of(config, SPLITS, "eval_split")
    refuse_if(config, not (config.do_train or config.do_eval or config.do_test), "do_train, do_eval or do_test must be True",
               "do_train", "do_eval", "do_test")
    refuse_if(config, config.start_eval_steps and not config.do_eval_only, "start_eval_steps must come with do_eval_only=True",
               "start_eval_steps", "do_eval_only")
    refuse_if(config, config.eval_ckpt_path and config.do_train, "eval_ckpt_path must come with do_train=False or do_eval_only=True",
               "eval_ckpt_path", "do_train")
    refuse_if(config, config.eval_ckpt_path and config.start_eval_steps,
               "eval_ckpt_path must come without start_eval_steps, which chooses among the checkpoints of model_dir",
               "eval_ckpt_path", "start_eval_steps")


def _check_warm_start(config):
    if config.warm_start_path is None:
        return
    refuse_if(config, not config.do_train, "warm_start_path must come with training", "warm_start_path", "do_train", "do_eval_only")
    source, target = os.path.realpath(config.warm_start_path), os.path.realpath(config.model_dir)
    refuse_if(config, os.path.commonpath((source, target)) == target, "warm_start_path must lie outside model_dir, which is a new run's",
               "warm_start_path", "model_dir")


def _check_tpu(config):
    named = those_set(config, "tpu", "tpu_zone", "gcp_project", "master")
    refuse_if(config, named and config.use_tpu is False, f"{' and '.join(named)} must come with use_tpu=True or without use_tpu",
               *named, "use_tpu")
    refuse_if(config, {"tpu", "master"} <= set(named), "tpu and master must not both be given", "tpu", "master")
    on_tpu = (["use_tpu"] if config.use_tpu else []) + named
    refuse_if(config, on_tpu and config.precision == "mixed_float16", "precision must not be mixed_float16 on a TPU, which has bfloat16",
               "precision", *on_tpu)
