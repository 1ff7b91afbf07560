from __future__ import annotations

import numpy as np
import pytest

from extractors import make_texts, save_sentence_model
from privmix.features import get_extractor


@pytest.fixture(scope="module")
def extractor(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    folder = save_sentence_model(tmp_path_factory.mktemp("sentence"))
    return get_extractor(f"sentence:{folder}", device="cpu")


def test_embeddings_are_those_of_the_model(extractor):
    texts = [*make_texts(5), "", "my card " * 100]
    due = extractor._network.encode(texts, batch_size=1, show_progress_bar=False)
    np.testing.assert_allclose(extractor.transform(texts), due, atol=1e-6)


def test_text_beyond_the_window_is_cut(extractor):
    long = "my card " * 100
    np.testing.assert_array_equal(extractor.transform([long]), extractor.transform([long + "pay"]))


def test_other_things_are_refused(extractor):
    with pytest.raises(ValueError, match=r"records\[2\]: expected a text, got int"):
        extractor.transform(["card", None, 3, "pay"])
