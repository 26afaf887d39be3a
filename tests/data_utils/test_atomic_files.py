"""Files appear whole or not at all."""

import json
import threading

import pytest

from data_utils.atomic_files import locked, replacing, write_json


def test_replacing_puts_the_new_file_in_place_of_the_old(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_leaves_the_old_file_when_the_block_fails(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        with replacing(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_json_round_trip(tmp_path):
    write_json(tmp_path / "file.json", {"a": [1, 2]})
    assert json.loads((tmp_path / "file.json").read_text()) == {"a": [1, 2]}


def test_a_second_writer_waits_for_the_lock(tmp_path):
    second_in = threading.Event()

    def second():
        with locked(tmp_path):
            second_in.set()

    thread = threading.Thread(target=second, daemon=True)
    with locked(tmp_path):
        thread.start()
        assert not second_in.wait(0.2)
    assert second_in.wait(5)
    thread.join()
