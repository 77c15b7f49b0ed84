"""Recordings in threads, in tasks, inside of each other, and beside a model that is compiled."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier

import pytest
import torch

from regard import nn

DIM, HEADS, BATCH, N = 12, 3, 2, 9


def layer_of():
    return nn.MultiHeadAttention(DIM, HEADS, batch_first=True)


def tokens(n=N):
    return torch.randn(BATCH, n, DIM)


def in_thread(function):
    """Call it in another thread, and wait."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_calls_of_other_threads_do_not_land_in_a_recording():
    layer, x = layer_of(), tokens()
    with nn.record(layer) as recording:
        in_thread(lambda: layer(x, x, x))  # started inside, with a context of its own
        assert len(recording) == 0
        layer(x, x, x)
    assert len(recording) == 1


def test_a_thread_that_runs_in_a_copy_of_the_context_is_recorded():
    layer, x = layer_of(), tokens()
    with nn.record(layer) as recording:
        context = copy_context()
        in_thread(lambda: context.run(layer, x, x, x))
    assert len(recording) == 1
    in_thread(lambda: context.run(layer, x, x, x))  # after it was closed
    assert len(recording) == 1


def test_two_threads_record_one_model_each_for_itself():
    layer, both_open = layer_of(), Barrier(2, timeout=60)

    def record(n):
        x = tokens(n)
        with nn.record(layer) as recording:
            both_open.wait()
            layer(x, x, x)
            both_open.wait()
        return [view.shape[-1] for view in recording.views()]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(record, (4, 7))) == [[4], [7]]


def test_tasks_that_are_started_inside_are_recorded_until_it_is_closed():
    layer, x = layer_of(), tokens()

    async def call(after):
        await after.wait()
        layer(x, x, x)

    async def main():
        now, later = asyncio.Event(), asyncio.Event()
        outside = asyncio.create_task(call(now))
        with nn.record(layer) as recording:
            inside, late = asyncio.create_task(call(now)), asyncio.create_task(call(later))
            now.set()
            await asyncio.gather(outside, inside, *(asyncio.to_thread(layer, x, x, x) for _ in range(4)))
        later.set()
        await late
        return recording

    recording = asyncio.run(main())
    assert len(recording) == len(recording.views(0)) == 1 + 4
    assert recording.bytes == 5 * nn.record(layer).estimate(N, batch=BATCH)


def test_recordings_in_recordings_keep_their_own_and_one_that_is_opened_twice_keeps_a_call_once():
    model, x = nn.Encoder(nn.EncoderLayer(DIM, HEADS, 16, batch_first=True), 2), tokens()
    with nn.record(model) as outer:
        model(x)
        with nn.record(model, layers=0) as inner, outer:
            model(x)
        model(x)
    assert (len(outer), len(inner)) == (6, 1)


def test_a_recording_does_not_break_the_graph_of_another_model():
    recorded, other, x = layer_of(), layer_of(), tokens()
    torch.compiler.reset()
    compiled = torch.compile(lambda x: other(x, x, x, need_weights=False)[0], fullgraph=True, backend="eager")
    with nn.record(recorded) as recording:
        compiled(x)
        recorded(x, x, x)
    assert len(recording) == 1


def test_a_compiled_model_is_recorded_again_and_again_without_compiling_again():
    model, x, graphs = nn.Encoder(nn.EncoderLayer(DIM, HEADS, 16, batch_first=True), 1).eval(), tokens(), []
    torch.compiler.reset()

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        compiled(x)
        for turn in range(4):
            with nn.record(model) as recording:
                compiled(x)
            compiled(x)
            assert len(recording) == 1
            if turn == 0:
                made = len(graphs)
    assert len(graphs) == made


def test_a_recorded_model_in_one_graph_is_refused_in_words():
    model, x = nn.Encoder(nn.EncoderLayer(DIM, HEADS, 16, batch_first=True), 1).eval(), tokens()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        wanted = compiled(x)
        with (
            pytest.raises(torch._dynamo.exc.Unsupported, match="or compile it without fullgraph=True"),
            nn.record(model),
        ):
            compiled(x)
        torch.testing.assert_close(compiled(x), wanted)
