"""A folder is made to hold what is wished for; what is there and right is used again."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from testing.golden_texts import copied, options

import data_utils.corpus_writer
from data_utils.corpus import Corpus
from data_utils.prepare import prepare_corpus

ROWS = dict(train_batch_size=3, eval_batch_size=2, tgt_len=5)
TRAIN, VALID, TEST = "train.bsz-3.tfrecord", "valid.bsz-2.tfrecord", "test.bsz-2.tfrecord"
WORDS = "the cat saw the dog and the bird saw a dog\n"


@pytest.fixture
def folder(tmp_path):
    """A folder with three texts of words."""
    for split, times in {"train": 5, "valid": 2, "test": 3}.items():
        (tmp_path / f"{split}.txt").write_text(WORDS * times)
    return tmp_path


@pytest.fixture
def written(monkeypatch):
    """The list of the record files that are written from now on."""
    names = []
    write_records = data_utils.corpus_writer.write_records

    def noted(stream, paths, *arguments):
        names.extend(path.name for path in paths)
        return write_records(stream, paths, *arguments)

    monkeypatch.setattr(data_utils.corpus_writer, "write_records", noted)
    return names


def prepared(folder, **changes):
    return prepare_corpus(**{"dataset": "text", "data_dir": folder, **ROWS, **changes})


def text_of(corpus, split):
    """Returns the text of the rows of a split, the first token of every row left out."""
    return [corpus.vocabulary.decode(row) for _, labels in corpus.dataset(split, 10_000) for row in labels.numpy()]


def records(folder):
    return sorted(path.name for path in (folder / "tfrecords").iterdir())


def times(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*") if path.is_file()}


def fresh(folder, tmp_path_factory, **changes):
    """Returns the corpus that a new folder with the same texts gets."""
    new = tmp_path_factory.mktemp("fresh")
    for path in folder.glob("*.txt"):
        shutil.copy(path, new)
    return prepared(new, **changes)


def same(corpus, other):
    """Tells whether two corpora have the same files and say the same."""
    def content(corpus, split):
        return ([Path(path).read_bytes() for path in corpus.record_files(split)], corpus.rows(split), corpus.n_tokens(split),
                corpus.n_unknown(split))

    return (corpus.identity, corpus.vocabulary.sha256()) == (other.identity, other.vocabulary.sha256()) and all(
        content(corpus, split) == content(other, split) for split in corpus.splits)


def test_what_is_made(folder):
    corpus = prepared(folder)
    made = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert made == sorted([".lock", "corpus.json", "vocabulary.json", "train.txt", "valid.txt", "test.txt",
                           *(f"tfrecords/{name}" for name in (TRAIN, VALID, TEST))])
    assert same(Corpus(folder), corpus)


@pytest.mark.parametrize("changes", [{}, {"vocabulary": "word"}, {"num_passes": 2}, {"num_hosts": 1, "vocabulary": "char"}], ids=str)
def test_the_same_call_writes_nothing(folder, changes, written):
    first = prepared(folder, **changes)
    before = times(folder)
    del before[folder / ".lock"]
    written.clear()
    assert same(prepared(folder, **{**changes, "tgt_len": 7, "num_procs": 1}), first)  # the files serve every length
    after = times(folder)
    del after[folder / ".lock"]
    assert (after, written) == (before, [])


CHANGES = {  # what is asked for: the record files that are made anew
    "train rows": (dict(train_batch_size=4), ["train.bsz-4.tfrecord"]),
    "eval rows": (dict(eval_batch_size=3), ["valid.bsz-3.tfrecord", "test.bsz-3.tfrecord"]),
    "test rows": (dict(test_batch_size=3), ["test.bsz-3.tfrecord"]),
    "valid rows": (dict(valid_batch_size=3), ["valid.bsz-3.tfrecord"]),
    "passes": (dict(num_passes=2), [TRAIN]),
    "vocabulary": (dict(vocabulary="char"), [TRAIN, VALID, TEST]),
    "size": (dict(vocab_size=4), [TRAIN, VALID, TEST]),
    "frequency": (dict(min_freq=6), [TRAIN, VALID, TEST]),
    "case": (dict(lower_case=True), [TRAIN, VALID, TEST]),
    "text": ("train.txt", [TRAIN, VALID, TEST]),
    "other text": ("valid.txt", [VALID]),
}


@pytest.mark.parametrize("change, expected", CHANGES.values(), ids=CHANGES)
def test_what_a_change_touches_is_made_anew(folder, change, expected, written, tmp_path_factory):
    arguments = dict(vocabulary="word")
    first = prepared(folder, **arguments)
    written.clear()
    if isinstance(change, str):
        text = (folder / change).read_text()
        (folder / change).write_text(text.replace("the", "one"))  # as long as before
    else:
        arguments |= change
    second = prepared(folder, **arguments)
    assert written == expected
    assert set(records(folder)) >= set(expected) and len(records(folder)) == 3
    assert same(second, fresh(folder, tmp_path_factory, **arguments))
    if not {"train_batch_size", "eval_batch_size", "test_batch_size", "valid_batch_size"} & set(arguments):
        assert second.identity != first.identity
    else:
        assert second.identity == first.identity
    written.clear()
    assert same(prepared(folder, **arguments), second) and written == []


def test_a_new_seed_matters_where_something_is_random(folder, written):
    first = prepared(folder, num_passes=2, shuffle_seed=1)
    second = prepared(folder, num_passes=2, shuffle_seed=2)
    assert text_of(first, "valid") == text_of(second, "valid")
    assert written == [TRAIN, VALID, TEST, TRAIN]
    assert second.identity != first.identity
    written.clear()
    once = prepared(folder, num_passes=1, shuffle_seed=3)
    assert prepared(folder, num_passes=1, shuffle_seed=4).identity == once.identity
    assert written == [TRAIN]


def test_an_edited_vocabulary_file(folder, written):
    file = folder / "list"
    file.write_text("the\ncat\nsaw\n")
    first = prepared(folder, vocabulary="word", vocab_file=str(file))
    assert first.vocabulary.symbols == ["the", "cat", "saw", "<eos>", "<unk>"]
    file.write_text("the\ndog\nsaw\n")
    second = prepared(folder, vocabulary="word", vocab_file=str(file))
    assert text_of(second, "valid")[1].splitlines()[0] == "<unk> saw the dog <unk> the <unk> saw <unk> dog"
    assert written == [TRAIN, VALID, TEST] * 2
    assert second.identity != first.identity


def test_another_dataset_in_the_same_folder(folder, tmp_path_factory):
    prepared(folder, vocabulary="word")
    second = prepared(folder, dataset="ptb")
    assert same(second, fresh(folder, tmp_path_factory, dataset="ptb"))
    assert second.vocabulary.symbols[0] == "<eos>"


@pytest.mark.slow
def test_hosts_share_the_rows(folder, tmp_path_factory):
    rows = dict(train_batch_size=4, eval_batch_size=4)
    one = fresh(folder, tmp_path_factory, **rows)
    for hosts in (2, 4):
        corpus = prepared(folder, num_hosts=hosts, **rows)
        assert all(text_of(corpus, split) == text_of(one, split) for split in one.splits)
        assert (corpus.identity, len(records(folder))) == (one.identity, 3 * hosts)
        for host in range(hosts):
            shares = [labels.numpy()[host * 4 // hosts:(host + 1) * 4 // hosts] for _, labels in one.dataset("train", 9)]
            for (_, labels), share in zip(corpus.dataset("train", 9, host=host), shares, strict=True):
                np.testing.assert_array_equal(labels, share)


def test_rows_that_are_not_given_stay_or_fit_the_hosts(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(WORDS * 10)
    assert [prepared(tmp_path, train_batch_size=None, eval_batch_size=None).rows(split) for split in ("train", "valid")] == [32, 16]
    assert prepared(tmp_path, train_batch_size=6, eval_batch_size=4).rows("train") == 6
    kept = prepared(tmp_path, train_batch_size=None, eval_batch_size=None, num_hosts=2)
    assert [kept.rows(split) for split in kept.splits] == [6, 4, 4]
    fitting = prepared(tmp_path, train_batch_size=None, eval_batch_size=None, num_hosts=3)
    assert [fitting.rows(split) for split in fitting.splits] == [6, 18, 18]


def test_the_order_that_is_not_given_stays(folder, written):
    first = prepared(folder, num_passes=3, shuffle_seed=7)
    written.clear()
    assert prepared(folder, train_batch_size=None, test_batch_size=4).identity == first.identity
    assert written == ["test.bsz-4.tfrecord"]
    assert prepared(folder, num_passes=1).identity != first.identity


@pytest.mark.parametrize("damage", ["delete", "truncate", "flip"])
@pytest.mark.parametrize("vocabulary", ["byte", "word"])
def test_a_damaged_record_file_is_made_anew(folder, damage, vocabulary, written):
    first = prepared(folder, vocabulary=vocabulary)
    path = folder / "tfrecords" / VALID
    content = path.read_bytes()
    if damage == "delete":
        path.unlink()
    else:
        path.write_bytes(content[:-3] if damage == "truncate" else content[:20] + bytes([content[20] ^ 1]) + content[21:])
    written.clear()
    assert same(prepared(folder, vocabulary=vocabulary), first)
    assert (written, path.read_bytes()) == ([VALID], content)


@pytest.mark.parametrize("name", ["corpus.json", "vocabulary.json"])
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "splits": []}', '{"kind": "byte"}', "\xff", None])
def test_a_damaged_json_file_is_made_anew(folder, name, content):
    first = prepared(folder, vocabulary="word")
    expected = (folder / name).read_text()
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content, encoding="latin-1")
    assert same(prepared(folder, vocabulary="word"), first)
    assert (folder / name).read_text() == expected


def test_a_changed_number_in_the_manifest_is_noticed(folder):
    first = prepared(folder)
    path = folder / "corpus.json"
    path.write_text(path.read_text().replace('"n_tokens": 215', '"n_tokens": 216'))
    assert same(prepared(folder), first)


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_an_interrupted_run_leaves_no_folder_that_looks_finished(folder, finished, monkeypatch):
    first = prepared(folder)
    write_records = data_utils.corpus_writer.write_records
    for split in first.splits:
        (folder / f"{split}.txt").write_text("x" * 103)

    def interrupted(stream, paths, *arguments):
        if paths[0].name == [TRAIN, VALID, TEST][finished]:
            raise KeyboardInterrupt
        return write_records(stream, paths, *arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(data_utils.corpus_writer, "write_records", interrupted)
        prepared(folder)
    with pytest.raises(FileNotFoundError):
        Corpus(folder)
    assert not list(folder.rglob("*.partial"))
    corpus = prepared(folder)
    assert all(set("".join(text_of(corpus, split))) == {"x"} for split in corpus.splits)


def test_what_killed_runs_leave_goes_and_all_else_stays(folder):
    prepared(folder)
    complete = set(folder.rglob("*"))
    (folder / "corpus.json").unlink()
    for name in ("train.bsz-9.tfrecord.partial", "train.bsz-9.tfrecord", "train-00003.bsz-4.host-0-of-2.tfrecord"):
        (folder / "tfrecords" / name).write_bytes(b"half")
    (folder / "corpus.json.partial").write_bytes(b"{")
    (folder / "vocabulary.json.partial").write_bytes(b"{")
    (folder / "tokens.partial").mkdir()
    (folder / "tokens.partial" / "train-0.raw").write_bytes(b"half")
    own = [folder / "mine.partial", folder / "tfrecords" / "mine.tfrecord", folder / "tfrecords" / "train.bsz-3.tlen-7.tfrecords"]
    for path in own:
        path.write_bytes(b"the user's own")
    prepared(folder)
    assert set(folder.rglob("*")) == complete | set(own)


def test_shuffles_of_one_billion_word(tmp_path, written):
    arguments = dict(dataset="lm1b_original", train_batch_size=2, eval_batch_size=2, num_passes=1, **options("lm1b"))
    corpora = [prepare_corpus(data_dir=copied("lm1b", tmp_path), **arguments)]
    assert written == [f"train-0000{number}.bsz-2.tfrecord" for number in range(4)] + [VALID, TEST]
    for change in (dict(num_shuffle=1), dict(shuffle_seed=1), dict(num_passes=2), dict(train_files=arguments["train_files"][::-1]),
                   dict(train_files=arguments["train_files"][:1]), dict(vocab_size=50)):
        written.clear()
        corpora.append(prepare_corpus(data_dir=tmp_path, **(arguments | change)))
        assert (VALID in written) == ("vocab_size" in change)
        assert records(tmp_path) == sorted({*written, VALID, TEST})
    lines = [sorted("".join(text_of(corpus, "train")).split()) for corpus in corpora]
    assert len(lines[0]) > len(lines[1])
    assert len({corpus.identity for corpus in corpora}) == len(corpora)
    shuffled = [prepare_corpus(data_dir=tmp_path, **arguments, shuffle_shards=True, shuffle_seed=seed).n_tokens("train") for seed in (1, 2)]
    assert shuffled == [corpora[0].n_tokens("train")] * 2


def test_rows_do_not_change_the_identity(folder, tmp_path_factory):
    corpora = [fresh(folder, tmp_path_factory, **changes) for changes in (
        {}, dict(train_batch_size=2, eval_batch_size=1), dict(train_batch_size=4, eval_batch_size=4, num_hosts=2))]
    assert len({corpus.identity for corpus in corpora}) == 1
