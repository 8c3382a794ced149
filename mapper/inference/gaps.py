"""What a checkpoint lacks: of what its own layers show, and of what every checkpoint of its families has."""

from __future__ import annotations

from collections.abc import Container

from mapper.inference.case import Case, Doubts
from mapper.inference.completeness import (
    MayLack,
    MayLackInside,
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
from mapper.inference.families import Checked, Part
from mapper.inference.outline import Outline
from mapper.naming.vocabulary import in_region
from mapper.rulebook.complete import has_known_names, home_of
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
    doubts.other(lacking_names(family, part.names, model_type))
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
    """What the examples of the families have, and this checkpoint has not."""
    families = case.families
    if families.whole is None:
        return
    whole, *towers = families.checked(case.names, outline.read)
    varied = varying(outline.leaves, families.varies())
    own = [MayLack(_optional(tower, case, outline)) for tower in towers]
    inside = [
        MayLackInside(
            part.region,
            optional,
            is_shown=_is_shown(part, whole, outline),
            home=home_of(tower.names.tensors(), tower.family.recognise) if _is_known(tower) else None,
        )
        for part, tower, optional in zip(families.parts, towers, own, strict=True)
    ]
    _find_lacking_of(whole, MayLack(_optional(whole, case, outline), inside), varied, outline, doubts)
    for tower, optional in zip(towers, own, strict=True):
        _find_lacking_of(tower, optional, varied, outline, doubts)


def _is_shown(part: Part, whole: Checked, outline: Outline) -> bool:
    """Whether a tower is of a type, and has the names, that towers have in examples of the family of the whole."""
    known = whole.family.complete
    types = {part.model_type, outline.facts.config.type_of(part.folder)}
    return not types.isdisjoint(known.towers) and has_known_names(
        known, whole.names.tensors(), whole.family.recognise, lambda path: in_region(part.region, path)
    )


def _is_known(tower: Checked) -> bool:
    """Whether a tower is of a type of the examples of its family, with their names: what is not there has no other name."""
    known = tower.family.complete
    has_names = has_known_names(known, tower.names.tensors(), tower.family.recognise)
    return tower.model_type in known.types and has_names


def _find_lacking_of(
    part: Checked, optional: MayLack, varied: Container[str], outline: Outline, doubts: Doubts
) -> None:
    """What the examples of one family have, and the part of the checkpoint that it speaks about has not."""
    family, names, config = part.family, part.names, outline.facts.config
    model_type = part.model_type or config.model_type
    elements = optional.beside(by_element(family, config.part(part.folder), model_type), varied)
    if _is_known(part) if part.model_type else model_type in family.complete.types:
        say = doubts.other if family.complete.is_sure else doubts.findings.extend
        say(
            lacking_of_examples(family, names, optional)
            or lesser_elements(family, names, elements, everywhere=True)
        )
    if part.folder or model_type in family.model_types:
        doubts.other(lesser_elements(family, names, elements))


def _optional(part: Checked, case: Case, outline: Outline) -> list[str]:
    """Patterns of what a part may lack."""
    config = outline.facts.config
    fields, model_type = config.part(part.folder), part.model_type or config.model_type
    return [
        *may_lack(part.family, fields, model_type, case.rulebook.config_vocabulary.unused),
        *(["bias"] if has_no_biases(part.leaves) else []),
        *_without(part, case, outline),
    ]
