"""Every kind of raw text gives the same bytes in blocks of any size, again and again, or says what is wrong."""

import dataclasses
import gzip
import hashlib
import uuid

import numpy as np
import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from data_utils.text_sources import MemoryText, SymbolFile, TextFile, TfdsText, tfds_builder

EXAMPLES = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """One folder for all examples of a property."""
    return tmp_path_factory.mktemp("sources")


def text_of(source, size=7):
    """Returns all of a source's text, none of whose blocks is empty."""
    blocks = list(source.blocks(size))
    assert all(type(block) is bytes and block for block in blocks)
    return b"".join(blocks)


def spelled(content, kind):
    """Returns a file's content as the original code's scripts write it."""
    if kind == "byte":
        return b" ".join(b"\n" if byte == 10 else str(byte).encode() for byte in content)
    return b" ".join(bytes([byte]).replace(b" ", b"_") for byte in content)


# --- TextFile, MemoryText


@EXAMPLES
@given(st.binary(max_size=60), st.integers(1, 70), st.integers(0, 60), st.integers(0, 60))
def test_a_range_of_a_file(folder, content, size, start, stop):
    (folder / "range.txt").write_bytes(content)
    start, stop = sorted((min(start, len(content)), min(stop, len(content))))
    source = TextFile(folder / "range.txt", start, stop)
    assert text_of(source, size) == text_of(source, size) == content[start:stop]
    assert all(len(block) == size for block in list(source.blocks(size))[:-1])
    assert source.sha256() == hashlib.sha256(content[start:stop]).hexdigest()
    assert text_of(TextFile(str(folder / "range.txt")), size) == content


def test_a_file_is_named_by_its_path(tmp_path):
    assert TextFile(tmp_path / "a.txt").name == SymbolFile(tmp_path / "a.txt", "byte").name == f"{tmp_path}/a.txt"


def test_a_file_that_ends_before_the_range(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"12345")
    with pytest.raises(ValueError, match=r"Expected at least 9 bytes in .*a\.txt\. Received: size=5$"):
        text_of(TextFile(tmp_path / "a.txt", 2, 9))


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"Expected to be able to read .*a\.txt \(No such file.*\)\. Received: path="
    ):
        text_of(TextFile(tmp_path / "a.txt"))


@EXAMPLES
@given(st.lists(st.binary(max_size=80), min_size=1, max_size=3), st.integers(1, 100))
def test_a_compressed_file(folder, members, size):
    stored = b"".join(gzip.compress(member) for member in members)
    (folder / "a.txt.gz").write_bytes(stored)
    source = TextFile(folder / "a.txt.gz")
    assert text_of(source, size) == text_of(source, size) == b"".join(members)
    assert source.sha256() == hashlib.sha256(stored).hexdigest()


@EXAMPLES
@given(st.binary(min_size=1, max_size=80), st.data())
def test_a_compressed_file_that_is_cut_off(folder, content, data):
    stored = gzip.compress(content)
    (folder / "cut.gz").write_bytes(stored[: data.draw(st.integers(1, len(stored) - 1))])
    with pytest.raises(ValueError, match=r"Expected a whole gzip file \(.*\)\. Received: path=.*cut\.gz$"):
        text_of(TextFile(folder / "cut.gz"))


@pytest.mark.parametrize("position", [0, 10, 12, -8])  # the header, the compressed bytes, the checksum
def test_a_compressed_file_that_is_damaged(tmp_path, position):
    stored = bytearray(gzip.compress(b"some text of some length" * 9))
    stored[position] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(stored)
    with pytest.raises(ValueError, match=r"Expected a whole gzip file \(.*\)\. Received: path=.*a\.gz$"):
        text_of(TextFile(tmp_path / "a.gz"))


def test_no_range_of_a_compressed_file():
    with pytest.raises(ValueError, match=r"that is not compressed. Received: path=a\.gz"):
        TextFile("a.gz", 3)


def test_a_remote_file():
    import tensorflow as tf

    content = bytes(range(256)) * 40
    path = f"ram://{uuid.uuid4()}/a.txt"
    for name, stored in {path: content, f"{path}.gz": gzip.compress(content)}.items():
        with tf.io.gfile.GFile(name, "wb") as file:
            file.write(stored)
        assert TextFile(name).name == name
        assert text_of(TextFile(name), 1000) == text_of(TextFile(name)) == content
        assert TextFile(name).sha256() == hashlib.sha256(stored).hexdigest()
    assert text_of(TextFile(path, 100, 1300), 500) == content[100:1300]


def test_a_remote_file_that_is_gone():
    path = f"ram://{uuid.uuid4()}/a.txt"
    with pytest.raises(FileNotFoundError, match=rf"Expected to be able to read {path} \(.*\)\. Received: path={path}$"):
        text_of(TextFile(path))


@EXAMPLES
@given(st.binary(max_size=40), st.integers(1, 50))
def test_text_in_memory(content, size):
    for data in (content, np.frombuffer(content, np.uint8)):
        source = MemoryText("some text", data)
        assert source.name == "some text"
        assert text_of(source, size) == text_of(source, size) == content
        assert source.sha256() == hashlib.sha256(content).hexdigest()


# --- SymbolFile


@EXAMPLES
@given(st.binary(max_size=60), st.integers(1, 40))
def test_byte_symbols_are_the_bytes_whatever_the_blocks(folder, content, size):
    (folder / "bytes.txt").write_bytes(spelled(content, "byte"))
    source = SymbolFile(folder / "bytes.txt", "byte")
    assert text_of(source, size) == text_of(source, size) == content
    assert source.sha256() == hashlib.sha256(content).hexdigest()


@EXAMPLES
@given(st.text("abz 019.~!", max_size=60), st.integers(1, 40))
def test_character_symbols_are_the_characters_whatever_the_blocks(folder, text, size):
    (folder / "characters.txt").write_bytes(spelled(text.encode(), "character"))
    source = SymbolFile(folder / "characters.txt", "character")
    assert text_of(source, size) == text_of(source, size) == text.encode()
    assert source.sha256() == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "kind, stored, content",
    [
        ("byte", b"62 \n 32", b">\n "),
        ("byte", b"62 \n \n 9 \n", b">\n\n\t\n"),
        ("byte", b"62\n32\n", b">\n \n"),  # a line break needs no blanks around it
        ("byte", b"  0   255 ", b"\0\xff"),
        ("character", b"_ g o n", b" gon"),
        ("character", b"_ g\no n\n", b" gon"),
        ("character", b" 1 2 3 4 5", b"12345"),
        ("byte", b"", b""),
        ("character", b" \n ", b""),
    ],
)
def test_what_symbols_stand_for(tmp_path, kind, stored, content):
    (tmp_path / "a.txt").write_bytes(stored)
    for size in range(1, len(stored) + 2):
        assert text_of(SymbolFile(tmp_path / "a.txt", kind), size) == content


@pytest.mark.parametrize(
    "kind, stored, line, symbol",
    [
        ("byte", b"1 2 \n 256", 2, "256"),
        ("byte", b"\n\n\n1 \n 999 2", 5, "999"),
        ("byte", b"1 \n 0032 4", 2, "0032"),
        ("byte", b"1 -2", 1, "-2"),
        ("byte", b"1 2\r\n", 1, "2\r"),
        ("byte", b"<mediawiki>", 1, "<mediawiki>"),
        ("byte", b"1 \xff", 1, "\ufffd"),
        ("byte", b"123456", 1, "123456"),
        ("character", b"a b\nc de f", 2, "de"),
        ("character", b"\n\nanarchism originated", 3, "anarchism"),
        ("character", b"a \xc3\xa9", 1, "\ufffd\ufffd"),
        ("character", b"a \t", 1, "\t"),
    ],
)
def test_a_file_that_holds_no_symbols(tmp_path, kind, stored, line, symbol):
    (tmp_path / "a.txt").write_bytes(stored)
    expected = {"byte": "decimal byte values", "character": "single ASCII characters"}[kind]
    with pytest.raises(ValueError) as whole:
        text_of(SymbolFile(tmp_path / "a.txt", kind), 100)
    assert str(whole.value).startswith(f"Expected {expected}")
    assert str(whole.value).endswith(f" in line {line} of {tmp_path}/a.txt. Received: symbol={symbol!r}")
    for size in range(1, len(stored) + 2):
        with pytest.raises(ValueError, match=f"in line {line} of "):
            text_of(SymbolFile(tmp_path / "a.txt", kind), size)


@EXAMPLES
@given(st.binary(max_size=30), st.integers(0, 30), st.sampled_from([b"256", b"1234", b"x", b"1x"]), st.integers(1, 30))
def test_one_wrong_byte_symbol_is_found_wherever_it_is(folder, content, position, wrong, size):
    symbols = spelled(content, "byte").split(b" ") if content else []
    position = min(position, len(symbols))
    line = content[:position].count(b"\n") + 1
    (folder / "wrong.txt").write_bytes(b" ".join([*symbols[:position], wrong, *symbols[position:]]))
    with pytest.raises(ValueError, match=f"in line {line} of "):
        text_of(SymbolFile(folder / "wrong.txt", "byte"), size)


def test_a_long_word_is_refused_at_once(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"7" * 5000)
    blocks = SymbolFile(tmp_path / "a.txt", "byte").blocks(10)
    with pytest.raises(ValueError, match="symbol='7777777777'"):
        next(blocks)


def test_symbols_in_a_compressed_file(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"62 \n 32"))
    assert text_of(SymbolFile(tmp_path / "a.txt.gz", "byte")) == b">\n "


def test_no_such_kind_of_symbols():
    with pytest.raises(ValueError, match="among byte, character. Received: kind='word'"):
        SymbolFile("a.txt", "word")


def test_sources_do_not_change(tmp_path):
    for source in (TextFile("a"), SymbolFile("a", "byte"), MemoryText("a", b"")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            source.path = "b"


# --- TfdsText


@pytest.fixture(scope="session")
def tfds_dir(tmp_path_factory):
    """Where the data sets of these tests are prepared."""
    return tmp_path_factory.mktemp("tfds")


@pytest.fixture(scope="session", autouse=True)
def data_sets():
    """Registers data sets that need no network: one text, two texts, none, and one that cannot be made."""
    import tensorflow_datasets as tfds

    def data_set(name, features, texts, failure=None):
        class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
            VERSION = tfds.core.Version("1.2.3")
            code_path = epath.Path(__file__)

            def _info(self):
                return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

            def _split_generators(self, dl_manager):
                if failure is not None:
                    raise failure
                return {split: self._generate_examples(texts[split]) for split in texts}

            def _generate_examples(self, texts):
                for number, text in enumerate(texts):
                    yield number, {key: number if key == "number" else f"{key} {text}" for key in features}

        Builder.__name__, Builder.name = name, name
        tfds.core.registered._DATASET_REGISTRY[name] = Builder

    text, texts = tfds.features.Text, {"train": [f"é {n}\nx" for n in range(700)], "test": ["t"]}
    data_set("txl_one", {"body": text(), "number": np.int64}, texts)
    data_set("txl_two", {"title": text(), "text": text()}, texts)
    data_set("txl_none", {"number": np.int64}, texts)
    data_set("txl_unreachable", {"text": text()}, texts, ConnectionError("no route (Caused by X)\nto host"))


def examples(split, key="body"):
    """Returns what the text of a split of a data set of `data_sets` is, whatever the order of its examples."""
    return sorted(f"{key} é {n}\nx\n" for n in range(700)) if split == "train" else [f"{key} t\n"]


def test_the_text_of_a_data_set(tfds_dir):
    source = TfdsText("txl_one", "train", tfds_dir)
    assert source.name == "txl_one train"
    assert source.n_examples == 700
    text = text_of(source, 1)
    assert text == text_of(source, 1000) == text_of(source)
    assert sorted(text.decode().split("body ")[1:]) == [part.removeprefix("body ") for part in examples("train")]
    assert len(list(source.blocks(1))) > 1
    assert len(list(source.blocks())) == 1
    assert text_of(TfdsText("txl_one", "test", tfds_dir)) == b"body t\n"


def test_expressions_cut_a_split(tfds_dir):
    whole = text_of(TfdsText("txl_one", "train", tfds_dir))
    first, second = (TfdsText("txl_one", split, tfds_dir) for split in ("train[:90%]", "train[90%:]"))
    assert (first.n_examples, second.n_examples) == (630, 70)
    assert text_of(first) + text_of(second) == whole


def test_several_texts_need_the_name_of_one(tfds_dir):
    assert text_of(TfdsText("txl_two:title", "test", tfds_dir)) == b"title t\n"
    assert text_of(TfdsText("txl_two:1.2.3:text", "test", tfds_dir)) == b"text t\n"
    for name in ("txl_two", "txl_two:1.2.3", "txl_two:number"):
        with pytest.raises(ValueError, match=rf"features of that type: text, title\. Received: name='{name}'$"):
            TfdsText(name, "test", tfds_dir)


def test_no_text_in_a_data_set(tfds_dir):
    with pytest.raises(ValueError, match=r"features of that type: none\. Received: name='txl_none'"):
        TfdsText("txl_none", "test", tfds_dir)
    assert not (tfds_dir / "txl_none").exists()  # it was not prepared for nothing


@pytest.mark.parametrize("name", ["txl_no_such", "txl_one/no_such", "txl_one:9.9.9", "", "/", "no such"])
def test_an_unknown_data_set(tfds_dir, name):
    with pytest.raises(ValueError) as error:
        TfdsText(name, "train", tfds_dir)
    assert str(error.value) == f"Expected a data set that tensorflow-datasets knows. Received: name={name!r}"


@pytest.mark.parametrize("split", ["valid", "train[", "train[:x]", "train[5%:]]", "", "train,test"])
def test_an_unknown_split(tfds_dir, split):
    with pytest.raises(ValueError) as error:
        TfdsText("txl_one", split, tfds_dir)
    assert sorted(str(error.value).partition("which are ")[2].partition(".")[0].split(", ")) == ["test", "train"]
    assert str(error.value).endswith(f"Received: split={split!r}")


def test_the_hash_of_a_data_set_tells_splits_and_features_apart(tfds_dir, tmp_path):
    names = [
        ("txl_one", "train"),
        ("txl_one", "test"),
        ("txl_one", "train[:50%]"),
        ("txl_one", "train[50%:]"),
        ("txl_two:text", "test"),
        ("txl_two:title", "test"),
    ]
    hashes = [TfdsText(name, split, tfds_dir).sha256() for name, split in names]
    assert len(set(hashes)) == len(hashes)
    assert TfdsText("txl_one", "train", tmp_path).sha256() == hashes[0]  # prepared anew, elsewhere


def test_a_data_set_that_cannot_be_downloaded(tmp_path):
    with pytest.raises(OSError) as error:
        tfds_builder("txl_unreachable", tmp_path)
    start = (
        f"Expected to be able to download and prepare the tensorflow-datasets data set txl_unreachable in {tmp_path}/"
    )
    assert str(error.value).startswith(start)
    assert str(error.value).endswith(" (ConnectionError: no route). Received: name='txl_unreachable'")


def test_a_prepared_data_set_is_not_made_again(tfds_dir, monkeypatch):
    TfdsText("txl_one", "test", tfds_dir)
    builder, feature = tfds_builder("txl_one", tfds_dir)
    monkeypatch.setattr(type(builder), "download_and_prepare", lambda self: pytest.fail("prepared again"))
    assert tfds_builder("txl_one", tfds_dir)[1] == feature == "body"


def test_a_data_set_in_the_folder_of_tensorflow_datasets_is_used(tfds_dir, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    TfdsText("txl_one", "test", tfds_dir)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tfds_dir))
    for data_dir in (tmp_path, None):
        builder, _ = tfds_builder("txl_one", data_dir)
        assert builder.data_dir.startswith(str(tfds_dir))
    assert list(tmp_path.iterdir()) == []
