"""The garbage collector: paused while much is made, and what is made for good is not looked through again."""

import gc

import pytest

from mapper._collector import collection_paused


@pytest.mark.parametrize("for_good", [True, False])
def test_what_is_made_for_good_is_left_alone(for_good):
    frozen = gc.get_freeze_count()
    with collection_paused(for_good=for_good):
        assert not gc.isenabled()
        held = [[at] for at in range(1000)]
    assert gc.isenabled()
    assert (gc.get_freeze_count() >= frozen + len(held)) == for_good
