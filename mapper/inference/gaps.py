"""What a checkpoint lacks: of what its own layers show, and of what every checkpoint of its families has."""

from __future__ import annotations

from mapper.inference.case import Case, Doubts
from mapper.inference.completeness import (
    broken_promises,
    by_element,
    has_no_biases,
    lacking_biases,
    lacking_kept_roles,
    lacking_names,
    lacking_of_examples,
    lacking_tensors,
    lesser_elements,
    may_lack,
    unpromised,
    varying,
)
from mapper.inference.outline import Outline
from mapper.inference.part import Checked
from mapper.rulebook.families import field_of


def find_gaps(case: Case, outline: Outline, doubts: Doubts) -> None:
    """What is missing whatever flows the blocks take."""
    for part in case.families.checked(case.names, outline.read):
        _find_gaps_of(part, case, outline, doubts)
    doubts.gap(lacking_tensors(leaf for leaf in outline.leaves if case.judges(leaf.place)))
    doubts.findings += lacking_tensors(leaf for leaf in outline.leaves if not case.judges(leaf.place))


def _find_gaps_of(part: Checked, case: Case, outline: Outline, doubts: Doubts) -> None:
    """What a family says that every checkpoint of it has, and this one has not."""
    family, config = part.family, outline.facts.config
    model_type, fields = part.model_type or config.model_type, config.part(part.folder)
    whole = case.families.whole
    left = whole.optional if part.folder and whole else ()
    doubts.other(lacking_names(family, part.names, model_type, left))
    if not part.folder:
        own = [scope for scope in outline.every() if case.judges(scope.block.home)]
        doubts.other(lacking_kept_roles(family, own))
    unbiased = lacking_biases(family, part.leaves, _without(part, case, outline))
    if unbiased and has_no_biases(part.leaves):
        doubts.findings.append(f"nothing has a bias here, and all maps of every {family.name} have")
    else:
        doubts.unlike(unbiased)
    config.consult(map(field_of, family.present_if), part.folder)
    lacking, extra = broken_promises(family, fields, part.names, model_type)
    doubts.unlike(lacking)
    doubts.findings += extra


def _without(part: Checked, case: Case, outline: Outline) -> list[str]:
    """Patterns of what the config says that is not there; of a part, what the whole may lack."""
    config, whole = outline.facts.config, case.families.whole
    if part.folder:
        decided = whole.present_if.values() if whole else ()
        return [*(name for names in decided for name in names), *(whole.optional if whole else ())]
    return unpromised(part.family, config.part(part.folder), part.model_type or config.model_type)


def find_lacking(case: Case, outline: Outline, doubts: Doubts) -> None:
    """What the examples of the family of the whole have, and this checkpoint has not."""
    if case.families.whole is None:
        return
    config = outline.facts.config
    parts = list(case.families.checked(case.names, outline.read))
    common = case.rulebook.config_vocabulary.unused
    varied = varying(outline.leaves, case.families.varies())
    for part in parts:
        family, fields = part.family, config.part(part.folder)
        model_type = part.model_type or config.model_type
        optional = may_lack(family, fields, model_type, common)
        optional += ["bias"] if has_no_biases(part.leaves) else []
        optional += _without(part, case, outline)
        elsewhere = [] if part.folder else [other.region for other in case.families.parts]
        if part is parts[0] and model_type in family.complete.types:
            doubts.other(lacking_of_examples(family, part.names, optional, elsewhere))
        if part.folder or model_type in family.model_types:
            some = [*optional, *by_element(family, fields, model_type)]
            doubts.other(lesser_elements(family, part.names, some, elsewhere, varied))
