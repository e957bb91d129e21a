"""Limits how often gpuledger corrects drift of one object, so that it fights nobody in a loop.

Pure; times are arguments. An object that somebody else keeps changing is corrected a number of times an hour, and then
left alone until the first of these corrections is an hour old.
"""

from gpuledger.edge.statuswriter.cache.objects import HOUR_S, ObjectState


def correction_allowed_at_s(state: ObjectState, per_hour_max: int, now_s: float) -> float:
    """When drift of the object may be corrected; not later than now where it may be at once."""
    times = state.corrected_at_s
    return now_s if len(times) < per_hour_max else times[-per_hour_max] + HOUR_S


def note_correction(state: ObjectState, per_hour_max: int, now_s: float) -> None:
    """Drift is being corrected."""
    state.corrected_at_s = (*state.corrected_at_s, now_s)[-per_hour_max:]
