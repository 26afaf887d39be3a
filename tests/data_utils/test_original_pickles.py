"""The pickles of the original code and of Hugging Face are read, and nothing in a pickle is run or overwhelms."""

import collections
import contextlib
import io
import json
import pickle
import sys
import time
import tracemalloc
import types
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_utils.original_pickles import read_original
from testing.gadgets import COMMAND, GADGETS, MARKER

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
CORPUS = b"c__main__\nCorpus\n)\x81"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
DTYPE = b"cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
IDX2SYM = b"X\x07\x00\x00\x00idx2sym"
LEGACY_HEAD = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))


class Corpus:
    """Pickled as the original's Corpus is."""


class Vocab:
    """Pickled as the original's Vocab is."""


@pytest.fixture
def original_modules(monkeypatch):
    """Makes `Corpus` and `Vocab` importable as what the original calls them, which pickle.dumps demands."""
    monkeypatch.setattr(Corpus, "__module__", "__main__")
    monkeypatch.setattr(Vocab, "__module__", "vocabulary")
    monkeypatch.setattr(sys.modules["__main__"], "Corpus", Corpus, raising=False)
    monkeypatch.setitem(sys.modules, "vocabulary", types.SimpleNamespace(Vocab=Vocab))


def golden_json(name):
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def read_bytes(folder, content):
    path = folder / "file"
    path.write_bytes(content)
    return read_original(path)


def refusal(folder, content):
    """Returns the message with which a file is refused, which must be one line that names the file."""
    with pytest.raises(ValueError) as caught:
        read_bytes(folder, content)
    message = str(caught.value)
    assert type(caught.value) is ValueError and message.startswith("Expected ") and ". Received: " in message
    assert message.endswith(f"path={folder / 'file'}") and len(message.splitlines()) == 1 and len(message) < 500
    return message


def zipped(content, method=zipfile.ZIP_STORED, names=("vocab/data.pkl",)):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that repeat
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


def vocabulary(**changes):
    return {"idx2sym": ["<eos>", "a", "b"], "sym2idx": {"<eos>": 0, "a": 1, "b": 2}, **changes}


@pytest.mark.parametrize("name", ["ptb", "wt103"])
def test_a_cache_of_python_3(name):
    corpus, expected = read_original(GOLDEN / name / "cache.pkl"), golden_json(f"{name}/vocab.json")
    assert corpus.symbols == expected["idx2sym"]
    assert corpus.counter == expected["counter"]
    assert corpus.special == tuple(expected["special"]) == ("<eos>",)
    assert corpus.lower_case is expected["lower_case"]
    assert (corpus.unk_id, corpus.eos_id) == (expected["unk_idx"], expected["eos_idx"]) == (None, 0)
    assert (corpus.dataset, corpus.cutoffs) == (name, tuple(expected["cutoffs"]))
    assert_streams(corpus, f"{name}/encoded.npz")


@pytest.mark.parametrize("name", ["ptb", "wt103"])
def test_a_cache_of_python_2(name):
    corpus, expected = read_original(GOLDEN / name / "cache_py27.pkl"), golden_json(f"{name}/vocab_py27.json")
    assert corpus.symbols == expected["idx2sym"]
    assert (corpus.dataset, corpus.cutoffs) == (name, tuple(expected["cutoffs"]))
    assert (corpus.special, corpus.eos_id) == (("<eos>",), 0)
    if name == "ptb":
        assert corpus.counter == golden_json("ptb/vocab.json")["counter"]
    else:
        assert {"café", "日本", "Ĝardeno", "–"} <= set(corpus.symbols) & set(corpus.counter)
    assert_streams(corpus, f"{name}/encoded_py27.npz")


def assert_streams(corpus, name):
    with np.load(GOLDEN / name) as encoded:
        assert set(corpus.streams) == set(encoded) == {"train", "valid", "test"}
        for split, ids in encoded.items():
            assert corpus.streams[split].dtype == np.int64
            np.testing.assert_array_equal(corpus.streams[split], ids)


def test_a_cache_written_through_an_import(tmp_path):
    content = (GOLDEN / "ptb" / "cache.pkl").read_bytes()
    corpus = read_bytes(tmp_path, content.replace(b"c__main__\nCorpus\n", b"cdata_utils\nCorpus\n", 1))
    assert corpus.symbols == golden_json("ptb/vocab.json")["idx2sym"]


@pytest.mark.parametrize("name", ["hub_style/vocab.pkl", "hub_style/vocab.bin", "hub_style_bin_legacy/vocab.bin"])
def test_vocabularies_of_the_hub(name):
    corpus, expected = read_original(GOLDEN / name), read_original(GOLDEN / "hub_style" / "vocab.json")
    assert corpus.symbols == expected.symbols == golden_json("hub_style/vocab.json")["idx2sym"]
    assert corpus.counter == expected.counter == golden_json("hub_style/vocab.json")["counter"]
    assert (corpus.special, corpus.lower_case, corpus.eos_id, corpus.unk_id) == (("<eos>",), False, 0, None)
    assert (corpus.dataset, corpus.cutoffs, corpus.streams) == (None, (), {})


def test_the_name_of_a_file_does_not_matter(tmp_path):
    for name in ("hub_style/vocab.bin", "ptb/cache.pkl"):
        assert read_bytes(tmp_path, (GOLDEN / name).read_bytes()).symbols == read_original(GOLDEN / name).symbols


def test_protocol_0_of_python_2():
    corpus = read_original(GOLDEN / "python2" / "cache_protocol_0.pkl")
    assert corpus.symbols == ["<eos>", "café", "it's", "x\n\"\\'"]
    assert corpus.counter == dict.fromkeys(corpus.symbols, 1)
    assert (corpus.dataset, corpus.streams) == ("lm1b", {"train": ["a/b", "c"]})
    assert corpus.lower_case is False


def test_text_that_is_not_utf8_is_latin_1_and_only_python_2_has_bytes_as_text(tmp_path):
    assert read_bytes(tmp_path, b"}" + IDX2SYM + b"]U\x04caf\xe9as.").symbols == ["café"]
    assert read_bytes(tmp_path, b"}" + IDX2SYM + b"]X\x04\x00\x00\x00\xc3\x83\xc2\xa9as.").symbols == ["Ã©"]
    assert "type=bytes" in refusal(tmp_path, b"}" + IDX2SYM + b"]C\x02\xc3\xa9as.")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["<i8", ">i4", "u2", "u1"])
def test_every_protocol_and_integer_dtype(tmp_path, original_modules, protocol, dtype):
    corpus, corpus.vocab = Corpus(), Vocab()
    vars(corpus.vocab).update(vocabulary(counter=collections.Counter("aab"), special=["<eos>"], eos_idx=0, unk_idx=2))
    corpus.vocab.sym2idx = collections.OrderedDict(corpus.vocab.sym2idx)
    corpus.train, corpus.test, corpus.valid = ["x", "y"], np.array([2, 0, 1] * 99, dtype), np.array([], dtype)
    corpus.dataset, corpus.cutoffs = "lm1b", [0, 2, 3]
    read = read_bytes(tmp_path, pickle.dumps(corpus, protocol))
    assert (read.symbols, read.counter) == (["<eos>", "a", "b"], {"a": 2, "b": 1})
    assert (read.unk_id, read.eos_id, read.cutoffs, read.dataset) == (2, 0, (0, 2, 3), "lm1b")
    assert (read.streams["train"], read.streams["valid"].size) == (["x", "y"], 0)
    assert read.streams["test"].tolist() == [2, 0, 1] * 99 and read.streams["test"].dtype.isnative


@settings(max_examples=60)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**70)), st.integers(0, 5))
def test_any_symbols_and_counts(tmp_path_factory, counts, protocol):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(pickle.dumps({"idx2sym": list(counts), "counter": collections.Counter(counts)}, protocol))
    corpus = read_original(path)
    assert (corpus.symbols, corpus.counter) == (list(counts), counts)


@pytest.mark.parametrize("changes", [
    {"idx2sym": ["a", "b", "a"], "sym2idx": {"a": 2, "b": 1}},
    {"sym2idx": {"<eos>": 0, "a": 2, "b": 1}},
    {"sym2idx": {"<eos>": 0, "a": 1}},
    {"sym2idx": [0, 1, 2]},
    {"idx2sym": ["<eos>", "a", 5]},
    {"idx2sym": {"<eos>": 0}},
    {"idx2sym": None},
    {"eos_idx": 3},
    {"unk_idx": -1},
    {"unk_idx": "1"},
    {"lower_case": 1},
    {"counter": {"a": "1"}},
    {"counter": ["a"]},
    {"special": "<eos>"},
], ids=str)  # fmt: skip
def test_a_vocabulary_that_contradicts_itself_is_refused(tmp_path, changes):
    read_bytes(tmp_path, pickle.dumps(vocabulary()))
    refusal(tmp_path, pickle.dumps(vocabulary(**changes)))


@pytest.mark.parametrize("changes", [
    {"train": np.array([0, 3])},
    {"train": np.array([-1, 0])},
    {"train": np.array([0.0, 1.0])},
    {"train": np.array([True])},
    {"train": np.array([0, "a"], object)},
    {"train": np.array([(0, 1)], [("x", "i8"), ("y", "i8")])},
    {"train": np.zeros((1, 3), int)},
    {"train": np.array(0)},
    {"train": [1, 2]},
    {"train": 5},
    {"cutoffs": ["a"]},
    {"cutoffs": 5},
    {"dataset": 5},
    {"vocab": None},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_corpus_that_contradicts_itself_is_refused(tmp_path, original_modules, protocol, changes):
    corpus, corpus.vocab = Corpus(), Vocab()
    vars(corpus.vocab).update(vocabulary())
    corpus.train = np.array([0, 2])
    read_bytes(tmp_path, pickle.dumps(corpus, protocol))
    vars(corpus).update(changes)
    refusal(tmp_path, pickle.dumps(corpus, protocol))


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected a cache.pkl.* Received: path="):
        read_original(tmp_path / "cache.pkl")


@pytest.mark.parametrize("content", [
    b"", b".", b"\x80", b"no pickle", b"PK", b"PK\x03\x04", b"{}", b"\x80\x02]q\x00.", b"N.", b"K\x01.", b"(.", b"0.",
    LEGACY_HEAD, LEGACY_HEAD + b"N.", pickle.dumps(vocabulary()) + b"x", zipped(b""), zipped(b"N.", names=["data.pkl"]),
], ids=repr)  # fmt: skip
def test_what_is_no_corpus_is_refused(tmp_path, content):
    refusal(tmp_path, content)


def test_what_hugging_face_built_is_refused_by_name():
    with pytest.raises(ValueError, match="Received: name=re._compile, path=.*hf_built"):
        read_original(GOLDEN / "hf_built" / "vocab.pkl")


MALICIOUS = {  # name: (a pickle, what the refusal must say)
    **GADGETS,
    "open": (b"cbuiltins\nopen\n" + MARKER + b"X\x01\x00\x00\x00w\x86R.", "name=builtins.open"),
    "numpy.load": (b"cnumpy\nload\n" + MARKER + b"\x85R.", "name=numpy.load"),
    "numpy.core.multiarray.scalar": (b"cnumpy.core.multiarray\nscalar\n)R.", "multiarray.scalar"),
    "OBJ of an admitted class": (b"(c__main__\nCorpus\no.", "opcode OBJ"),
    "STACK_GLOBAL, dotted": (b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93)R.", "name=numpy.dtype.__init__"),
    "STACK_GLOBAL, no texts": (b"\x80\x04K\x01K\x02\x93.", "type=int"),
    "a name of many lines": (b"\x80\x04\x8c\x03a\nb\x8c\x01\r\x93.", r"name=a\nb.\r"),
    "a long name": (b"\x80\x04\x8c\x01a\x8c\xf0" + b"x" * 240 + b"\x93.", "name=a.x"),
    "subclass loophole": (b"c__main__\nCorpus.__class__\n.", "name=__main__.Corpus.__class__"),
    "persistent id, binary": (b"\x80\x02U\x07storageQ.", "opcode BINPERSID"),
    "NEWOBJ_EX": (b"\x80\x04" + CORPUS[:-2] + b")}\x92.", "opcode NEWOBJ_EX"),
    "codecs: another codec": (b"c_codecs\nencode\n" + MARKER + b"X\x03\x00\x00\x00zip\x86R.", "encoding="),
    "codecs: no codec": (b"c_codecs\nencode\n" + MARKER + b"\x85R.", "TypeError"),
    "codecs: errors": (b"c_codecs\nencode\n" + MARKER + b"X\x06\x00\x00\x00latin1N\x87R.", "TypeError"),
    "codecs: no latin": (b"c_codecs\nencode\nX\x03\x00\x00\x00\xe6\x97\xa5X\x06\x00\x00\x00latin1\x86R.", "Unicode"),
    "codecs.decode": (b"c_codecs\ndecode\n" + MARKER + b"\x85R.", "name=_codecs.decode"),
    "bytes of a size": (b"c__builtin__\nbytes\nJ\xff\xff\xff\x7f\x85R.", "TypeError"),
    "bytearray of a size": (b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "name=builtins.bytearray"),
    "call without a tuple": (b"c__main__\nCorpus\n]R.", "type=list"),
    "state of a class": (b"c__main__\nCorpus\n}X\x03\x00\x00\x00foo" + MARKER + b"sb.", "type=type"),
    "state of a function": (b"ccollections\nCounter\n}b.", "type=function"),
    "state of a dict": (b"}}b.", "type=dict"),
    "state of a Corpus, slots": (CORPUS + b"}}\x86b.", "type=tuple"),
    "state of a Corpus, keys": (CORPUS + b"}K\x01K\x02sb.", "type=int"),
    "state of an array, dict": (ARRAY + b"}b.", "type=dict"),
    "state of an array, short": (ARRAY + b"K\x01\x85b.", "ValueError"),
    "array of objects": (b"cnumpy\ndtype\nX\x02\x00\x00\x00O8K\x00K\x01\x87R.", "dtype='O8'"),
    "array of Python objects": (b"cnumpy\ndtype\nc__main__\nCorpus\n\x85R.", "type=type"),
    "array whose dtype is a text": (ARRAY + b"(K\x01K\x01\x85X\x02\x00\x00\x00O8\x89C\x08xxxxxxxxtb.", "type=str"),
    "array data as objects": (ARRAY + b"(K\x01K\x01\x85" + DTYPE + b"\x89](K\x01etb.", "dtype=int64"),
    "array of a negative size": (ARRAY + b"(K\x01J\xff\xff\xff\xff\x85" + DTYPE + b"\x89C\x00tb.", "dtype=int64"),
    "float": (b"G" + bytes(8) + b".", "opcode BINFLOAT"),
    "set": (b"\x80\x04\x8f.", "opcode EMPTY_SET"),
    "tuple as key": (b"})K\x01s.", "type=tuple"),
    "Corpus as key": (b"}" + CORPUS + b"K\x01s.", "type=_Instance"),
    "memo that is not there": (b"h\x07.", "KeyError"),
    "protocol 0 text as expression": (b"S'a' + str(1)\n.", "EOFError"),
    "items of odd number": (b"}(X\x01\x00\x00\x00au.", "ValueError"),
    "legacy torch layout": (LEGACY_HEAD + b"cos\nsystem\n" + COMMAND + b"\x85R.", "name=os.system"),
    "zip layout": (zipped(b"cos\nsystem\n" + COMMAND + b"\x85R."), "name=os.system"),
    "zip layout, twice": (zipped(b"}.", names=("a/data.pkl", "b/data.pkl")), "number=2"),
    "tensor": (zipped(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n."), "name=torch._utils._rebuild_tensor_v2"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALICIOUS)
def test_nothing_in_a_file_is_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content, complaint = MALICIOUS[name]
    assert complaint in refusal(tmp_path, content)
    assert not Path("marker").exists()


@pytest.mark.parametrize("name", ["os.system", "posix.system, protocol 0", "INST", "STACK_GLOBAL", "open"])
def test_what_is_malicious_is_dangerous(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = pickle.loads(MALICIOUS[name][0])
    if name == "open":
        result.close()
    assert Path("marker").exists()


def test_reading_leaves_the_real_classes_alone(tmp_path):
    before = dict(vars(collections.Counter))
    for target in (b"ccollections\nCounter\n", b"cnumpy\nndarray\n", b"c__main__\nCorpus\n"):
        refusal(tmp_path, target + b"N}X\x08\x00\x00\x00__init__K\x01s\x86b.")
    assert dict(vars(collections.Counter)) == before
    assert read_bytes(tmp_path, pickle.dumps(vocabulary())).symbols == ["<eos>", "a", "b"]


BOMBS = {
    "array of 10 GB": ARRAY + b"(K\x01\x8a\x05\x00\xe4\x0b\x54\x02\x85" + DTYPE + b"\x89C\x00tb.",
    "array of 10 GB, NEWOBJ": b"cnumpy\nndarray\n\x8a\x05\x00\xe4\x0b\x54\x02\x85\x81.",
    "buffer of 10 GB": b"cnumpy.core.numeric\n_frombuffer\n(C\x00" + DTYPE + b"\x8a\x05\x00\xe4\x0bT\x02\x85NtR.",
    "bytes of 10 GB": b"\x80\x04\x8e\x00\xe4\x0bT\x02\x00\x00\x00.",
    "bytearray of 10 GB": b"\x80\x05\x96\x00\xe4\x0bT\x02\x00\x00\x00.",
    "text of 10 GB": b"\x80\x04\x8d\x00\xe4\x0bT\x02\x00\x00\x00.",
    "Python 2 text of 2 GB": b"T\xff\xff\xff\x7f.",
    "Python 2 text of negative length": b"T\xff\xff\xff\xff.",
    "number of 2 GB": b"\x8b\xff\xff\xff\x7f.",
    "frame of 10 GB": b"\x80\x04\x95\x00\xe4\x0bT\x02\x00\x00\x00N.",
    "memo of 64 GB": b"Nr\xff\xff\xff\xff.",
    "number of a million digits": b"L" + b"9" * 1_000_000 + b"L\n.",
    "one text, many bytes": b"c_codecs\nencode\nq\x00X\x00\x00\x10\x00" + b"x" * (1 << 20)
    + b"X\x06\x00\x00\x00latin1\x86q\x010]" + b"h\x00h\x01Ra" * 2000 + b".",
    "one text, many bytes, kept": b"c_codecs\nencode\nX\x00\x00\x10\x00" + b"x" * (1 << 20)
    + b"X\x06\x00\x00\x00latin1\x86q\x01R]" + b"c_codecs\nencode\nh\x01Ra" * 2000 + b".",
    "one list, many dicts": b"](" + b"](X\x01\x00\x00\x00aK\x01e" * 50_000 + b"eq\x00]"
    + b"ccollections\nOrderedDict\nh\x00\x85Ra" * 2000 + b".",
    "nested tuples as key": b"})" + b"\x85" * 500_000 + b"K\x01s.",
    "doubling tuples as key": b"})q\x00" + b"h\x00h\x00\x86q\x00" * 64 + b"K\x01s.",
    "doubling tuples as dtype": b"cnumpy\ndtype\n)q\x00" + b"h\x00h\x00\x86q\x00" * 64 + b"\x85R.",
    "doubling tuples as encoding": b"c_codecs\nencode\n)q\x00" + b"h\x00h\x00\x86q\x00" * 64 + b"h\x00\x86R.",
    "doubling lists as symbol": b"}" + IDX2SYM + b"]q\x00" + b"]q\x01h\x00ah\x01h\x00aq\x00" * 64 + b"s.",
    "nested lists": b"]" * 200_000 + b"a" * 199_999 + b".",
    "nested instances": CORPUS + (b"q\x00" + CORPUS + b"}X\x01\x00\x00\x00ah\x00sb") * 20_000 + b".",
    "marks": b"(" * 200_000 + b".",
    "list in itself": b"}" + IDX2SYM + b"]q\x00h\x00as.",
    "Corpus in itself": CORPUS + b"q\x00}X\x05\x00\x00\x00vocabh\x00sb.",
    "one symbol, often": b"}" + IDX2SYM + b"](T\x00\x00\x10\x00" + b"\xe9" * (1 << 20) + b"q\x01" + b"h\x01" * 9999
    + b"es.",
    "zip bomb": zipped(b"N" * 50_000_000 + b".", zipfile.ZIP_DEFLATED),
}  # fmt: skip


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", BOMBS)
def test_a_short_file_takes_neither_much_memory_nor_much_time(tmp_path, name):
    start = time.monotonic()
    tracemalloc.start()
    try:
        refusal(tmp_path, BOMBS[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30e6 + 150 * len(BOMBS[name])
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("name", ["ptb/cache_py27.pkl", "hub_style/vocab.pkl", "hub_style/vocab.bin",
                                  "hub_style_bin_legacy/vocab.bin"])
def test_a_file_that_was_cut_off_is_refused(tmp_path, name):
    content = (GOLDEN / name).read_bytes()
    for length in [*range(0, 40), *range(40, len(content), len(content) // 40), len(content) - 1]:
        refusal(tmp_path, content[:length])


@pytest.mark.parametrize("name", ["hub_style/vocab.pkl", "hub_style/vocab.bin", "hub_style_bin_legacy/vocab.bin",
                                  "wt103/cache.pkl", "ptb/cache_py27.pkl"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_never_raise_anything_but_a_value_error(tmp_path, name, data):
    content = bytearray((GOLDEN / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        content[start:start + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
    with contextlib.suppress(ValueError):
        read_bytes(tmp_path, bytes(content))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([
    *(bytes([opcode]) for opcode in b"(.012NR]})abdelostu\x81\x85\x86\x87\x93\x94"), b"K\x01", b"h\x00", b"q\x00",
    b"X\x02\x00\x00\x00i8", b"X\x06\x00\x00\x00latin1", b"C\x08abcdefgh", IDX2SYM, CORPUS, ARRAY, DTYPE,
    b"ccollections\nCounter\n", b"ccollections\nOrderedDict\n", b"c_codecs\nencode\n", b"cnumpy\ndtype\n",
    b"cnumpy\nndarray\n", b"ccopy_reg\n_reconstructor\n", b"cnumpy.core.numeric\n_frombuffer\n", b"i__main__\nCorpus\n",
]), max_size=40).map(b"".join))  # fmt: skip
def test_any_order_of_opcodes_never_raises_anything_but_a_value_error(tmp_path, content):
    with contextlib.suppress(ValueError):
        read_bytes(tmp_path, content + b".")
