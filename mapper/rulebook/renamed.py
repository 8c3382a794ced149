"""What rules called otherwise up to 0.1: read as it is called now, and said, for one release.

Hints and saved readings have facts by name; a user's own rule files may have all of these; the flows in a saved model
call operations.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import field
from typing import Any

from mapper._dataclass import dataclass
from mapper.rulebook.strict import Document, load_yaml

FACTS = {  # what a fact was called -> what it is called
    "alternating_streams": "altup_streams",
    "attention.averaged": "attention.context_mean",
    "attention.block": "attention.block_frames",
    "attention.blocks": "attention.bidirectional_blocks",
    "attention.bounded_decay": "attention.decay_bounded",
    "attention.comparisons": "attention.disentangled_terms",
    "attention.delay_factor": "attention.autocorrelation_factor",
    "attention.gated": "attention.query_gated",
    "attention.gating": "attention.gates",
    "attention.grouped": "attention.cross_grouped",
    "attention.halved": "attention.two_sided",
    "attention.in_groups": "attention.grouped_query",
    "attention.index_count": "attention.index_topk",
    "attention.key_border": "attention.key_padding",
    "attention.keys": "attention.kv_sharing",
    "attention.kv_rank": "attention.kv_lora_rank",
    "attention.largest_scale": "attention.max_logit_scale",
    "attention.left": "attention.left_positions",
    "attention.lending": "attention.kv_shared",
    "attention.lent_count": "attention.kv_shared_count",
    "attention.lent_layers": "attention.kv_sharing_layers",
    "attention.limited": "attention.window_limited",
    "attention.map_groups": "attention.grouped_projections",
    "attention.map_window": "attention.image_window",
    "attention.offset_size": "attention.bias_hidden_size",
    "attention.plain_dim": "attention.nope_dim",
    "attention.positioned": "attention.query_key_positions",
    "attention.query_border": "attention.query_padding",
    "attention.query_rank": "attention.query_lora_rank",
    "attention.reach": "attention.one_sided_window",
    "attention.right": "attention.right_positions",
    "attention.scored": "attention.similarity",
    "attention.seen": "attention.keys_from",
    "attention.shared": "attention.single_key",
    "attention.shared_maps": "attention.shared_projections",
    "attention.shown": "attention.returns_weights",
    "attention.softplus_gates": "attention.gates",
    "attention.span": "attention.relative_span",
    "attention.tempered": "attention.temperature_scaled",
    "attention.trained_window": "attention.pretrained_window",
    "attention.unit": "attention.mask_unit",
    "attention.units_first": "attention.mask_units_first",
    "attention.units_later": "attention.mask_units_later",
    "attention.waves": "attention.projects_sinusoids",
    "attention.window_rate": "attention.compression_rate",
    "attention.windows_off": "attention.window_disabled",
    "convolution.border": "convolution.pad_size",
    "convolution.reach": "convolution.pad_size",
    "convolution.side_padding": "convolution.pad_size",
    "cross_attention.foreign": "cross_attention.other_width",
    "decoder.reads": "decoder.cross_attends",
    "delay_blocks.dilation": "tdnn_blocks.dilation",
    "delay_blocks.dilations": "tdnn_blocks.dilations",
    "depth.largest": "depth.maximum",
    "drawn": "initializer_range",
    "duration_asked": "duration_requested",
    "duration_longest": "duration_max_period",
    "embedding.border": "embedding.pad_size",
    "embedding.corrected": "embedding.token_dropout",
    "excitation.activation": "squeeze_excitation.activation",
    "excitation.channels": "squeeze_excitation.channels",
    "excitation.gate": "squeeze_excitation.gate",
    "excitation.reduced_size": "squeeze_excitation.reduced_size",
    "features.arranged": "features.layout",
    "features.blank": "features.reset_ids",
    "features.deep": "features.deepstack",
    "features.heard": "features.audio_select",
    "features.stretch": "features.window_frames",
    "frames.band_step": "frames.band_stride",
    "frames.step": "frames.duration",
    "frames.stretch": "frames.window_chunks",
    "frames.stretch_frames": "frames.window_frames",
    "frames.time_step": "frames.time_stride",
    "frames_per_tube": "frames_per_tubelet",
    "fusion.place": "fusion.level",
    "fusion.places": "fusion.levels",
    "image.enlarged": "image.upscale",
    "image.given": "image.output_layout",
    "image.leading": "image.prefix_tokens",
    "layer.given": "layer.out_channels",
    "layer.growth": "layer.channel_factor",
    "layer.halved": "layer.output_scales",
    "layer.halvings": "layer.rescale_count",
    "layer.placed": "layer.positioned",
    "layer.read": "layer.in_channels",
    "layer.reads_words": "layer.reads_embeddings",
    "layer.rescale": "layer.rescale_every",
    "layer.shares": "layer.residual_scales",
    "layer.widening": "layer.expansion",
    "layer.without_memory": "layer.without_encoder",
    "layered.embedding_scale": "per_layer.embedding_scale",
    "layered.projection_scale": "per_layer.projection_scale",
    "layered.rows": "per_layer.rows",
    "layout_stream": "feed_forward.other_width",
    "layered.scale": "per_layer.scale",
    "layered_size": "per_layer_size",
    "letters.block": "characters.block",
    "letters.joined": "characters.downsampling",
    "merger.behind": "merger.insert_at",
    "moe.apart": "moe.weights_returned",
    "moe.bound": "moe.gate_limit",
    "moe.bounded": "moe.gate_clamped",
    "moe.busy": "moe.computing_experts",
    "moe.idle_count": "moe.identity_count",
    "moe.jointly": "moe.shared_routed",
    "moe.slope": "moe.gate_slope",
    "narrow_rank": "bottleneck_rank",
    "norm.lent": "norm.embedding_shared",
    "page.image": "layout.image",
    "page.pairs": "layout.pairs",
    "page.scale": "layout.scale",
    "page_positions": "layout_positions",
    "patches.batch": "patches.batch_norm",
    "place_temperature": "sinusoidal.temperature",
    "place_temperature_across": "sinusoidal.temperature_columns",
    "places.audio": "token_ids.audio",
    "places.image": "token_ids.image",
    "places.padded": "token_ids.as_padding",
    "places.video": "token_ids.video",
    "position_temperature": "sinusoidal.temperature",
    "position_temperature_columns": "sinusoidal.temperature_columns",
    "pool.end_id": "pooling.end_id",
    "position.stretching": "position.interpolation",
    "position.waves": "position.sinusoidal",
    "projector.words": "projector.vocabulary",
    "queries.centred": "queries.conditional",
    "rotary.counted": "rotary.dim_stated",
    "rotary.older_dim": "rotary.legacy_dim",
    "rotary.pairs": "rotary.style",
    "series.numbers": "series.outputs",
    "series.spread": "series.quantile_head",
    "similarity.largest": "similarity.max_scale",
    "similarity.most": "similarity.max_log_scale",
    "speakers_asked": "speakers_requested",
    "stage.leading": "stage.prefix_tokens",
    "state_space.step_least": "state_space.min_step",
    "states.each": "states.all_layers",
    "states.inner": "states.intermediate",
    "states.raw": "states.unnormed",
    "streams.ahead": "ngram.streams",
    "streams.count": "residual_streams.count",
    "streams.eps": "residual_streams.eps",
    "streams.iterations": "residual_streams.iterations",
    "streams.joined": "residual_streams.reduction",
}
VALUES = {  # fact, as it is called now -> what a value was -> what it is
    "attention.bidirectional_blocks": {"places": "image_tokens"},
    "attention.kv_sharing": {"lent": "shared"},
    "attention.kv_sharing_layers": {"lent": "shared"},
    "attention.norms": {"first": "before_rotary", "last": "after_rotary"},
    "attention.similarity": {"products": "dot_product", "angles": "lsh"},
    "attention.values": {"normed": "normalised"},
    "convolution.padding_mode": {"mirrored": "reflect"},
    "embedding.segments_in": {"words": "tokens"},
    "features.positions": {"words": "tokens"},
    "features.scaled": {"words": "tokens"},
    "moe.kind": {"busy": "computing", "idle": "identity"},
    "moe.kinds": {"busy": "computing", "idle": "identity"},
    "residual_streams.reduction": {"weighed": "weighted"},
    "rotary.style": {"halves": "half", "halves_back": "half_reversed", "neighbours": "interleaved"},
}
FIELDS = {  # fields of flows and steps
    "after": "extends",
    "lends": "reads_elsewhere",
    "parts": "calls",
    "signs": "prefer_if",
    "unread": "ignored",
}
FAMILY_FIELDS = {  # fields of families
    "brings": "implies",
    "brings_of": "implies_of",
    "promises": "present_if",
    "promises_of": "present_if_of",
}
FAMILY_PARTS = {
    "absent": "recognise: {lacks: [...]}",
    "by_type_only": "recognise: {by_type_only: true}",
    "requires_roles": "requires: [{role: [...]}]",
    "implies": "requires: [{pattern: patterns}]",
    "unbiased": 'requires: ["*.bias"], and optional: {pattern.bias: null}',
    "present_if": "optional: {pattern: field}",
    "varies": "optional: {role: [...]}",
    "kinds": "names: {pattern: {kind: ...}}",
    "forms": "names: {pattern: {form: ...}}",
    "transposed": "names: {pattern: {form: transposed}}",
    "unused": "names: {pattern: {unused: why}}",
    "folders": "towers: {tower: {folders: [...]}}",
    "reads_as": "towers: {tower: {called: [...]}}",
}  # fields of before, which are still read -> what says it now
TOPICS = {  # topics of flows that others call
    "attended": "dot_product_attention",
    "biased": "score_bias",
    "blocks": "bidirectional_blocks",
    "chosen": "vision_selection",
    "counted": "token_positions",
    "distances": "key_distances",
    "elected": "routed_experts",
    "excitation": "squeeze_excitation",
    "forgotten": "decay_gate",
    "framed": "downsampled_mask",
    "gated": "gated_output",
    "heard": "audio_selection",
    "located": "location_variable",
    "place_waves": "fourier_positions",
    "placed": "position_embedding",
    "pool": "pooling",
    "probed": "router_logits",
    "scaled_by": "series_scale",
    "scored": "router_scores",
    "seen": "bidirectional_mask",
    "turned": "rotary_applied",
    "visible": "decoder_mask",
    "waves": "sinusoidal",
    "weighed": "expert_weights",
}
VARIABLES = {  # what the bodies of flows have of blocks around
    "encoded": "encoder_hidden_states",
    "encoded_mask": "cross_attention_mask",
    "encoded_positions": "encoder_positions",
    "memory": "layer_cache",
    "slots": "cache_position",
}
OPERATIONS = {  # operations, in the bodies of flows; of those that are gone now: flows/retired.py
    "add_at_places": "add_features_by_id",
    "attend_scaled": "attend",
    "attend_scaled_biased": "attend_biased",
    "attend_delays": "autocorrelation",
    "attend_streams": "attend_ngram",
    "balance": "sinkhorn",
    "behind_tokens": "after_tokens",
    "best_experts": "top_k_experts",
    "best_experts_of_groups": "top_k_experts_of_groups",
    "blank_places": "reset_feature_ids",
    "cache_positions_seen": "cache_positions_of_keys",
    "cache_slots": "new_cache_positions",
    "codes_apart": "split_codes",
    "codes_of_moments": "codes_of_frames",
    "convolve_located": "location_variable_convolution",
    "corner_waves": "corner_sinusoids",
    "correct_streams": "altup_correct",
    "cut": "split_at",
    "cut_blocks": "split_into_blocks",
    "cut_chunks": "split_into_chunks",
    "cut_map": "partition_map",
    "cut_pieces": "split_into_segments",
    "distance_waves": "distance_sinusoids",
    "distance_waves_split": "distance_sinusoids_split",
    "drop_last": "trim_end",
    "duration_waves": "duration_sinusoids",
    "experts_of_words": "experts_of_tokens",
    "extend": "extend_cache",
    "fading_mean": "weighted_key_value",
    "fit_waves": "scale_sinusoids",
    "for_source": "cross_attention_cache",
    "frame_waves": "frame_sinusoids",
    "frames_behind": "frames_after",
    "gate_bounded": "clamped_swiglu",
    "gate_halves": "gated_activation_unit",
    "grow_by_position": "position_temperature",
    "halve_map": "max_pool_map",
    "hide_empty_queries": "mask_empty_queries",
    "hide_values": "mask_values",
    "image_waves": "image_sinusoids",
    "join_map": "merge_map",
    "join_places": "fold_patches",
    "join_seen": "join_masks",
    "join_streams": "reduce_streams",
    "joined_seen": "downsampled_characters_mask",
    "keep_largest": "gaussian_topk",
    "keep_source": "keep_keys_values",
    "logits_of": "inverse_sigmoid",
    "map_waves": "map_fourier_features",
    "merge_streams": "altup_merge",
    "mix_previous": "token_shift",
    "moved_boxes": "refine_boxes",
    "open_streams": "expand_streams",
    "pack_pieces": "pack_segments",
    "pad_before": "pad_start",
    "pad_places": "pad_features",
    "padding_mask_behind": "padding_mask_after",
    "part_streams": "altup_split",
    "patch_places": "patch_coordinates",
    "piece_mask": "segment_mask",
    "place_all_features": "scatter_all_features",
    "place_codes": "scatter_codes",
    "place_features": "scatter_features",
    "place_features_at": "scatter_features_by_mask",
    "place_kinds": "feature_kinds",
    "place_latents": "scatter_latents",
    "place_rows": "scatter_rows",
    "place_sinusoids": "masked_sinusoids",
    "place_vectors": "scatter_vectors",
    "places_by_offset": "unfold_patches",
    "places_of": "feature_positions",
    "places_seen": "unmasked_positions",
    "point_waves": "point_fourier_features",
    "position_indices_behind": "position_indices_after",
    "predict_streams": "altup_predict",
    "real_counts": "unpadded_counts",
    "real_frames": "unpadded_frames",
    "rotary_tables_alternating": "rotary_tables_interleaved",
    "rotate": "apply_rotary",
    "rotate_by_axis": "apply_rotary_by_axis",
    "rotate_interleaved": "apply_rotary_interleaved",
    "rotate_last": "apply_rotary_last",
    "rotate_partial": "apply_rotary_partial",
    "rotate_partial_interleaved": "apply_rotary_partial_interleaved",
    "row_of_chunks": "pack_chunks",
    "seen_patches": "real_patches",
    "series_apart": "decompose_series",
    "shift_distances": "relative_shift",
    "shown_vectors": "unpadded_vectors",
    "source_kept": "cached_keys_values",
    "split_alternating": "split_interleaved",
    "spread_joined": "upsample_characters",
    "spread_places": "spread_patches",
    "square_waves": "square_sinusoids",
    "streams_beside": "ngram_states",
    "swap_frames": "swap_frames_and_patches",
    "timed_positions": "time_positions",
    "tube_places": "tubelet_coordinates",
    "turn_by_time": "apply_rotary_by_time",
    "unit_vectors": "l2_normalise",
    "windows_before": "earlier_windows",
    "without_masked_tokens": "token_dropout",
    "zero_behind": "zero_after",
}

_VALUES_AT = ("value", "values", "among", "map", "default", "otherwise")  # where a definition has values
_AS_WRITTEN = ("tensors", "config", "doc", "why", "source")  # keys under which nothing is a rule's own name
_WORD = re.compile(r"(?<![\w./-])(fact\.)?([a-z_][\w]*(?:\.[a-z_]\w*)?)(?![\w/])(?!\.\w)")
_NAME = re.compile(r"(?<![\w.\"'])[a-z_]\w*(?![\w(])")
_CALL = re.compile(r"(?<![\w.])([a-z_]\w*)(?=\()")


def fact_now(name: str, known: Container[str]) -> str:
    """What a fact is called: another name only for one that is not known, and was one."""
    now = FACTS.get(name, name)
    return now if name not in known and now in known else name


def value_now(fact: str, value: Any) -> Any:
    """What a value of a fact is called."""
    return VALUES.get(fact, {}).get(value, value) if isinstance(value, str) else value


def calls_now(body: str) -> str:
    """The body of a flow with the operations, and what the option `cache` gives, as they are called."""
    body = _CALL.sub(lambda match: OPERATIONS.get(match[1], match[1]), body)
    return _NAME.sub(lambda match: VARIABLES.get(match[0], match[0]), body)


def renamed_document(document: Document) -> Document:
    """The same file with every name as it is now, and notes of those that were others."""
    renamer = _Renamer(document.label, document.data)
    data = renamer.read(document.data)
    renamer.parts(data)
    if not renamer.notes:
        return document
    return Renamed(
        document.path, document.label, data, document.marks, document.lacks, notes=list(renamer.notes)
    )


@dataclass
class Renamed(Document):
    """A rule file that has names of old."""

    notes: list[str] = field(default_factory=list)

    def whole(self) -> Document:
        return renamed_document(load_yaml(self.path, self.label)) if self.lacks else self


class _Renamer:
    def __init__(self, label: str, data: Any):
        self.label = label
        self.is_of_flows = isinstance(data, dict) and bool({"block", "forward"} & data.keys())
        self.notes: dict[str, None] = {}

    def read(self, value: Any, table: Mapping[str, str] | None = None, key: str = "") -> Any:
        """A value below `key`; `table` has the values of the fact that it is for."""
        if isinstance(value, dict):
            return self.mapping(value, table)
        if isinstance(value, list):
            return [self.read(item, table, key) for item in value]
        if not isinstance(value, str):
            return value
        if table and value in table:
            return self.said(value, table[value])
        if key == "forward":
            return self.body(value)
        if key in ("parts", "calls") and self.is_of_flows:  # in a vocabulary these are words of names
            return self.said(value, TOPICS.get(value, value))
        return _WORD.sub(
            lambda match: match[0].replace(match[2], self.said(match[2], FACTS.get(match[2], match[2]))),
            value,
        )

    def parts(self, data: Any) -> None:
        """Says which fields of a family are part of others now. They are read as they stand."""
        said = data if isinstance(data, dict) and "family" in data else {}
        for key, now in FAMILY_PARTS.items():
            if key in said:
                self.notes[f"{self.label}: {key} is part of another field now: {now}"] = None

    def mapping(self, value: dict[str, Any], table: Mapping[str, str] | None) -> dict[str, Any]:
        """A mapping; its keys stay in order, by which their lines are known."""
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = self.key(key, item, value)
            if key in _AS_WRITTEN:
                found[name] = item
            elif name in VALUES:
                found[name] = self.read(item, VALUES[name], name)
            else:
                found[name] = self.read(item, table if key in _VALUES_AT else None, name)
        return found

    def key(self, key: Any, item: Any, beside: Mapping[str, Any]) -> Any:
        tables: tuple[Mapping[str, str], ...] = (FACTS,)
        if "forward" in beside or "block" in beside:
            tables = (FACTS, FIELDS)
        elif "family" in beside:
            tables = (FACTS, FAMILY_FIELDS)
        name = next((table[key] for table in tables if key in table), key)
        return key if name in beside else self.said(key, name)

    def body(self, text: str) -> str:
        calls = {**TOPICS, **OPERATIONS}
        text = _CALL.sub(lambda match: self.said(match[1], calls.get(match[1], match[1])), text)
        facts = {f"fact.{old}": f"fact.{new}" for old, new in FACTS.items()}
        return re.sub(
            r"\bfact(\.\w+)+", lambda match: self.said(match[0], facts.get(match[0], match[0])), text
        )

    def said(self, old: str, new: str) -> str:
        if new != old:
            self.notes[
                f"{self.label}: {old.removeprefix('fact.')} is called {new.removeprefix('fact.')} now"
            ] = None
        return new
