"""What tables need, by hand."""

import torch

from mapper.operations import tables

ROWS = torch.tensor([[0, 0, 1, 1, 1, 2]])
COLUMNS = torch.tensor([[0, 0, 1, 2, 2, 1]])


def test_means_of_cells_that_have_tokens():
    cells = torch.tensor([[0, 0, 2]])
    assert tables.cell_average(torch.tensor([[1.0, 3.0, 5.0]]), cells, 4).tolist() == [[2.0, 0.0, 5.0, 0.0]]


def test_cells_of_the_best_column_keep_their_mean():
    types = torch.zeros(1, 6, 7, dtype=torch.long)
    types[..., 1], types[..., 2] = COLUMNS, ROWS
    scores = torch.tensor([[9.0, 9.0, 1.0, 2.0, 4.0, 6.0]])
    of_columns = torch.tensor([[9.0, 9.0, 0.0, 1.0, 1.0, 0.0]])
    got = tables.select_cells(scores, of_columns, types, None, (4, 4), False)
    torch.testing.assert_close(got, torch.tensor([[-9991.0, -9991.0, -9999.0, 3.0, 3.0, -9994.0]]))
