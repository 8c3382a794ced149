"""From a checkpoint to its architecture: roles, facts and their evidence, families, flows, findings."""

from mapper.inference.infer import infer

__all__ = ["infer"]
