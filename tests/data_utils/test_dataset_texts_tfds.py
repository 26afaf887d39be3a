"""Which splits of a tensorflow-datasets data set become train, valid and test."""

import numpy as np
import pytest
from etils import epath

from data_utils.dataset_texts import SPLITS, tfds_text
from data_utils.text_sources import TfdsText


def texts(found):
    """Returns split -> its text, and checks that there are the three splits in order."""
    assert tuple(found) == SPLITS
    return {split: b"".join(b"".join(source.blocks()) for source in sources) for split, sources in found.items()}


@pytest.fixture(scope="session")
def tfds_dir(tmp_path_factory):
    """Where the data sets of these tests are prepared."""
    return tmp_path_factory.mktemp("tfds")


@pytest.fixture(scope="session", autouse=True)
def data_sets():
    """Registers data sets that need no network: txl_own_splits, txl_short_name and txl_no_valid."""
    import tensorflow_datasets as tfds

    def data_set(name, splits):
        class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
            VERSION = tfds.core.Version("1.0.0")
            code_path = epath.Path(__file__)

            def _info(self):
                features = tfds.features.FeaturesDict({"number": np.int64, "text": tfds.features.Text()})
                return tfds.core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, dl_manager):
                return {split: self._generate_examples(split) for split in splits}

            def _generate_examples(self, split):
                for number in range(20 if split == "train" else 2):
                    yield number, {"number": number, "text": split}

        Builder.__name__, Builder.name = name, name
        tfds.core.registered._DATASET_REGISTRY[name] = Builder

    data_set("txl_own_splits", ["train", "validation", "test", "valid"])
    data_set("txl_short_name", ["train", "valid", "test"])
    data_set("txl_no_valid", ["train", "test"])


@pytest.mark.parametrize("name, valid", [("txl_own_splits", b"validation\n"), ("txl_short_name", b"valid\n")])
def test_a_data_set_with_three_splits(tfds_dir, name, valid):
    found = tfds_text(tfds_dir, name)
    assert texts(found) == {"train": b"train\n" * 20, "valid": valid * 2, "test": b"test\n" * 2}
    assert type(found["test"][0]) is TfdsText


def test_a_data_set_with_two_splits_needs_expressions(tfds_dir):
    with pytest.raises(ValueError) as error:
        tfds_text(tfds_dir, "txl_no_valid")
    message = str(error.value).replace("test, train", "train, test")
    assert message == (
        "Expected three comma-separated expressions such as train[:90%],train[90%:95%],train[95%:] in --tfds_splits "
        "for txl_no_valid, which has the splits train, test. Received: tfds_splits=None"
    )
    for splits in ("train[:90%], train[90%:] ,test", ["train[:90%]", "train[90%:]", "test"]):
        expected = {"train": b"train\n" * 18, "valid": b"train\n" * 2, "test": b"test\n" * 2}
        assert texts(tfds_text(tfds_dir, "txl_no_valid", splits)) == expected


@pytest.mark.parametrize(
    "splits, message",
    [
        ("train,test", "Expected three comma-separated expressions over "),
        ("train,test,", "Expected three comma-separated expressions over "),
        ("", "Expected three comma-separated expressions over "),
        ("train,test,test,test", "Expected three comma-separated expressions over "),
        ("train,valid,test", "Expected an expression over the splits of txl_no_valid, which are "),
        ("train,test[,test", "Expected an expression over the splits of txl_no_valid, which are "),
        ("train,train[:0],test", "Expected examples in every one of the --tfds_splits. Received: split='train[:0]'"),
    ],
)
def test_wrong_expressions(tfds_dir, splits, message):
    with pytest.raises(ValueError) as error:
        tfds_text(tfds_dir, "txl_no_valid", splits)
    assert str(error.value).startswith(message)
    assert str(error.value).count("Received: ") == 1
    assert "\n" not in str(error.value)
