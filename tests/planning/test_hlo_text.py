"""Traffic read from HLO text, against sums made by hand over small programs written down here."""

import pytest

from vrjax.hlo_text import read_traffic

# A loop of 3 turns that slices one layer's weights, multiplies, and gathers over 4 devices; then an update in place.
PROGRAM = """
HloModule jit_f, is_scheduled=true

%fused_slice (param_0: bf16[3,64,64], param_1: s32[]) -> bf16[1,64,64] {
  %param_0 = bf16[3,64,64]{2,1,0:T(8,128)(2,1)} parameter(0)
  %param_1 = s32[]{:T(128)} parameter(1)
  ROOT %slice.1 = bf16[1,64,64]{2,1,0} dynamic-slice(%param_0, %param_1), dynamic_slice_sizes={1,64,64}
}

%body (arg: (s32[], f32[8,64], bf16[3,64,64])) -> (s32[], f32[8,64], bf16[3,64,64]) {
  %arg = (s32[], f32[8,64]{1,0}, bf16[3,64,64]{2,1,0}) parameter(0)
  %index = s32[] get-tuple-element(%arg), index=0
  %x = f32[8,64]{1,0} get-tuple-element(%arg), index=1
  %w = bf16[3,64,64]{2,1,0} get-tuple-element(%arg), index=2
  %layer = bf16[1,64,64]{2,1,0} fusion(%w, %index), kind=kLoop, calls=%fused_slice
  %whole = bf16[4,64,64]{2,1,0} all-gather(%layer), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}
  %y = f32[8,64]{1,0} convolution(%x, %whole), dim_labels=bf_io->bf
  ROOT %out = (s32[], f32[8,64]{1,0}, bf16[3,64,64]{2,1,0}) tuple(%index, %y, %w)
}

%condition (arg.1: (s32[], f32[8,64], bf16[3,64,64])) -> pred[] {
  %arg.1 = (s32[], f32[8,64]{1,0}, bf16[3,64,64]{2,1,0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

%fused_update (param_0.1: f32[100,64], param_1.1: f32[1,64], param_2: s32[]) -> f32[100,64] {
  %param_0.1 = f32[100,64]{1,0} parameter(0)
  %param_1.1 = f32[1,64]{1,0} parameter(1)
  %param_2 = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %update = f32[100,64]{1,0} dynamic-update-slice(%param_0.1, %param_1.1, %param_2, %zero)
}

ENTRY %main (p0: f32[8,64], p1: bf16[3,64,64], p2: f32[100,64], p3: f32[1,64], p4: s32[]) -> f32[100,64] {
  %p0 = f32[8,64]{1,0} parameter(0)
  %p1 = bf16[3,64,64]{2,1,0} parameter(1)
  %p2 = f32[100,64]{1,0} parameter(2)
  %p3 = f32[1,64]{1,0} parameter(3)
  %p4 = s32[] parameter(4)
  %start = (s32[], f32[8,64]{1,0}, bf16[3,64,64]{2,1,0}) tuple(%p4, %p0, %p1)
  %loop = (s32[], f32[8,64]{1,0}, bf16[3,64,64]{2,1,0}) while(%start), condition=%condition, body=%body, TRIPS
  %sum = f32[8,64]{1,0} all-reduce-start(%p0), channel_id=2, replica_groups=[2,4]<=[8], to_apply=%add
  %done = f32[8,64]{1,0} all-reduce-done(%sum)
  ROOT %result = f32[100,64]{1,0} fusion(%p2, %p3, %p4), kind=kLoop, calls=%fused_update
}
"""
LAYER, ROW, SCALAR = 64 * 64 * 2, 8 * 64 * 4, 4
KNOWN = 'backend_config={"known_trip_count":{"n":"3"},"known_init_step":{"init":"0","step":"1"}}'


def traffic(trips: str, loop_trips: int = 1):
    return read_traffic(PROGRAM.replace("TRIPS", trips), loop_trips)


def test_a_loop_reads_one_layer_a_turn():
    slice_, gather = LAYER + LAYER + SCALAR, LAYER + 4 * LAYER
    product = ROW + ROW + 4 * LAYER
    reduce_, update = 2 * ROW, 2 * 64 * 4 + SCALAR  # the update writes its row, and reads it, not the array around it
    assert traffic(KNOWN).bytes == 3 * (slice_ + gather + product) + reduce_ + update


def test_collectives_send_what_a_ring_sends():
    found = traffic(KNOWN)
    assert found.counts == {"all-gather": 3, "all-reduce": 1}
    # gathering: 3 of 4 parts pass each device; reducing: that twice, of the whole array
    assert found.sent == {"all-gather": 3 * 3 * LAYER, "all-reduce": 2 * ROW * 3 / 4}


@pytest.mark.parametrize("turns", [1, 64])
def test_a_loop_that_does_not_say_its_turns_takes_those_given(turns):
    assert traffic("metadata={}", turns).counts["all-gather"] == turns


def test_a_loop_that_counts_to_a_constant_says_its_turns():
    """As a TPU's compiler leaves it: in the condition, not beside the loop."""
    counting = PROGRAM.replace(
        "  ROOT %less = pred[] constant(true)",
        "  %limit = s32[]{:T(128)} constant(5)\n  %at = s32[] get-tuple-element(%arg.1), index=0\n"
        "  ROOT %less = pred[] compare(%at, %limit), direction=LT",
    ).replace("TRIPS", "metadata={}")
    assert read_traffic(counting, 64).counts["all-gather"] == 5


def test_a_slice_within_a_fusion_of_a_fusion_and_onto_the_chip():
    """What is read is the slice, though a fusion within takes it, and though it lies on the chip (S(1)) afterwards."""
    inner = PROGRAM.replace(
        "ROOT %slice.1 = bf16[1,64,64]{2,1,0} dynamic", "ROOT %slice.1 = bf16[1,64,64]{2,1,0:T(8,128)S(1)} dynamic"
    )
    outer = """
%fused_outer (param_0.9: bf16[3,64,64], param_1.9: s32[]) -> bf16[1,64,64] {
  %param_0.9 = bf16[3,64,64]{2,1,0:T(8,128)(2,1)} parameter(0)
  %param_1.9 = s32[]{:T(128)} parameter(1)
  ROOT %inner = bf16[1,64,64]{2,1,0} fusion(%param_0.9, %param_1.9), kind=kLoop, calls=%fused_slice
}

%body (arg"""
    nested = inner.replace("\n%body (arg", outer, 1).replace(
        "kind=kLoop, calls=%fused_slice\n  %whole", "kind=kLoop, calls=%fused_outer\n  %whole"
    )
    assert nested.count("%fused_outer") == 2
    assert read_traffic(nested.replace("TRIPS", KNOWN)).bytes == traffic(KNOWN).bytes
