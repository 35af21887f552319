"""Plays: workflows as data. A typed state, and a tree of parts that change it, performed by the same engine.

    order = Play("order", OrderState, [
        Act("reserve", reserve, compensate=release, retry=Retry(attempts=3)),
        Signal("manager-approval", Approval, on_receive=apply_approval, timeout="48h", on_timeout=give_up),
        Scene("ship", [Act("pack", pack), Chorus("notify", [Act("mail", mail), Act("sms", sms)])], saga=True),
        Cue("tier", choose_tier, {"gold": Act("gift", gift), "else": None}),
    ])
    app.add(order)

A play is a workflow: it is started, signalled, paused, retried, listed like any other, and its result is its state.
The parts are in `parts`, what is checked of them in `checking`, how they are performed in `performing`, how a play is
drawn and where a run stands in it in `drawing`, and what the state was at any time in `states`.
"""

from perdure.channels import Signal
from perdure.play.drawing import mermaid
from perdure.play.parts import Act, Call, Chorus, Cue, Part, Scene, Sleep
from perdure.play.play import Play

__all__ = ["Act", "Call", "Chorus", "Cue", "Part", "Play", "Scene", "Signal", "Sleep", "mermaid"]
