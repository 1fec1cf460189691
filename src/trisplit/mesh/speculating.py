"""An answer drafted ahead: guesses kept under way, judged where is sampled, made anew if wrong."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Literal

from trisplit.mesh.drafts import Draft
from trisplit.mesh.guessing import Guess, Guesser
from trisplit.mesh.speculation import Forecast, Guesses, Pace
from trisplit.mesh.streams import Came, Stream, order_to_sample
from trisplit.mesh.tails import sampler
from trisplit.mesh.trips import Trips
from trisplit.models.generation import Generation, Piece
from trisplit.wire.frame import DECODED, DRAFTED, ROW_BY_ROW

Mode = Literal["auto", "stream", "rounds"]

FIRST_WINDOW: Final = 16
"""Guesses under way before anything is measured: what six stations 50 ms apart hold."""
RECONSIDER_EVERY: Final = 16
"""Tokens between thoughts about whether another way of drafting would be quicker."""

WATCH_EVERY: Final = 16
"""Tokens between looks at a draft that is not worth sending; twice as many each time it still is not."""
WATCH_SELDOM: Final = 256
CHEAP_S: Final = 0.001
"""A draft that takes less is looked at all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculate:
    """How an answer is drafted: as a `stream` of single ids, or in `rounds` of `k` guesses, one frame each.

    `auto` begins as a stream and goes over to what is quicker as measured.
    """

    draft: Draft
    mode: Mode = "auto"
    k: int = 8


class Speculation:
    """One answer under way. What stands is the answer's; what is guessed behind it may be void any moment."""

    def __init__(
        self, trips: Trips, stream: Stream, answer: Generation, how: Speculate, thread: Executor
    ) -> None:
        """Guesses are made in `thread`."""
        self._trips, self._stream, self._answer, self._how = trips, stream, answer, how
        self._sampler = sampler(trips, stream)
        self._guesser = Guesser(how.draft, thread, stream.wake)
        self._guesses = Guesses(answer.ids.tolist(), stream.epoch)
        self._number = stream.order_number
        self._is_mute = False  # the draft has no guess for what there is
        self._k = how.k if how.mode == "rounds" else 0  # 0 in a stream
        self._in_round = False
        self._round_began_s = 0.0
        self._rounds_s: dict[int, float] = {}
        self._until_thought = RECONSIDER_EVERY
        self._watched: int | None = None  # a guess that was not sent
        self._watch_every = self._until_watch = WATCH_EVERY
        self.was_hit = False  # the last id that came was guessed rightly
        self.pace = Pace(first_window=FIRST_WINDOW)

    @property
    def ahead(self) -> int:
        """Guesses under way, or made for the next round."""
        return self._guesses.ahead

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """The pieces of the answer, as they come."""
        trips, stream, answer = self._trips, self._stream, self._answer
        trips.drafted += 1
        try:
            stream.move_to(answer.position, len(answer.pending))
            await self._order()
            self._guesser.ask(self._guesses.ids, stream.epoch)  # so that it reads the prompt meanwhile
            await trips.feed(stream, answer.pending, answer.position)
            while not answer.finished:
                if stream.order_number != self._number:
                    await self._resume()
                for came in await self._sampler.came():
                    yield self._accept(came)
                    if answer.finished:
                        return
                    self._end_round()  # its ids come together
                if not (self._reconsider() or self._advance()):
                    await trips.wait(stream, "a token")
        finally:
            trips.drafted -= 1
            stream.void()
            trips.fence(stream)
            await self._guesser.rest()  # who made the draft may close it then

    async def _order(self) -> None:
        """Says how to choose what follows what stands."""
        self._number = self._stream.order_number
        await self._sampler.order(order_to_sample(self._stream, self._answer, self._mode))
        self._guesses = Guesses(self._answer.ids.tolist(), self._stream.epoch)

    @property
    def _mode(self) -> Literal["stream", "rounds"]:
        return "rounds" if self._k else "stream"

    async def _resume(self) -> None:
        """A station was lost, or drafts go another way: the last id that stands goes round again."""
        stream, answer = self._stream, self._answer
        while self._number != stream.order_number:
            await self._trips.whole.wait()
            await self._order()
        self.pace.pause()
        self._is_mute, self._in_round, self._watched = False, False, None
        if self._mode == "stream":
            await self._trips.feed(stream, answer.pending, answer.position, DECODED)

    def _accept(self, came: Came) -> Piece:
        """An id stands: what was guessed behind it goes on, or is void."""
        hit = self._guesses.judge(*came)
        self.was_hit = bool(hit)
        if self._mode == "stream":
            self.pace.came(time.monotonic(), hit)
        elif hit is not None:  # the ids of a round come together: no gap means anything
            self.pace.judge(hit=hit)
        if not hit:
            self._is_mute = False
            self._compare(came.token_id)
        self._until_thought -= 1
        piece = self._answer.accept(came.token_id)
        self._stream.known = self._answer.length
        return piece

    def _compare(self, token_id: int) -> None:
        """Judges a guess that was only watched: a draft that has become better is used again."""
        self._until_watch -= 1
        if self._watched is not None:
            hit = self._watched == token_id
            self.pace.judge(hit=hit)
            is_cheap = (self._guesser.usual_s or 0.0) < CHEAP_S
            self._watch_every = 1 if hit or is_cheap else min(2 * self._watch_every, WATCH_SELDOM)
            self._watched, self._until_watch = None, self._watch_every

    # --- guesses ---

    @property
    def _window(self) -> int:
        """How many guesses may be under way, or make a round."""
        if self._k:
            return self._k
        return max(min(1, self.pace.window), self.pace.window // max(1, self._trips.drafted))

    def _advance(self) -> bool:
        """Sends what was guessed and asks for the next; whether there was anything to do."""
        if self._stream.known is None or self._in_round:
            return False
        guess = self._guesser.answer()
        if guess is not None:
            self._take(guess)
        if self._wants_more():
            if self._guesser.is_free:
                self._guesser.ask(self._guesses.ids, self._guesses.epoch)
        elif self._mode == "rounds":
            self._send_round()
        return guess is not None

    @property
    def _is_watching(self) -> bool:
        """Whether guesses are so seldom right that they are only looked at, now and then."""
        return self._window == 0

    def _wants_more(self) -> bool:
        guesses = self._guesses
        # What is fed is followed by something that is chosen.
        if self._is_mute or guesses.next_position >= self._answer.longest - 1:
            return False
        if self._is_watching:
            return guesses.ahead == 0 and self._watched is None and self._until_watch <= 0
        return guesses.ahead < self._window

    def _take(self, guess: Guess) -> None:
        """A guess has come; what it was asked for may be void by now."""
        guesses = self._guesses
        if (guess.epoch, guess.position) != (guesses.epoch, guesses.next_position):
            return
        if guess.token_id is None:
            self._is_mute = True
        elif self._is_watching:
            self._watched = guess.token_id
        else:
            guesses.add(guess.token_id)
            if self._mode == "stream":
                self._sampler.draft(guess.position, [guess.token_id])
                self._trips.say(self._stream, guess.position, [guess.token_id], DECODED | DRAFTED)

    def _send_round(self) -> None:
        """The last id that stands, which nobody has fed, and all guesses behind it."""
        answer, drafted = self._answer, self._guesses.ids[self._answer.length :]
        if drafted:
            self._sampler.draft(answer.length, drafted)
        ids = [*answer.pending, *drafted]
        self._trips.say(self._stream, answer.position, ids, ROW_BY_ROW if drafted else DECODED)
        self._in_round, self._round_began_s = True, time.monotonic()

    def _end_round(self) -> None:
        if self._in_round and self._guesses.ahead == 0:
            took_s = time.monotonic() - self._round_began_s
            self._rounds_s[self._k] = min(took_s, self._rounds_s.get(self._k, took_s))
        self._in_round = False

    # --- the way of drafting ---

    def _reconsider(self) -> bool:
        """Goes over to what is quicker by far, when no guess would be lost; whether it did."""
        if self._how.mode != "auto" or self._until_thought > 0 or self._guesses.ahead or self._in_round:
            return False
        self._until_thought = RECONSIDER_EVERY
        pace, trips = self.pace, self._trips
        if pace.trip_s is None or (best := self._forecast(pace.trip_s).best(self._k)) == self._k:
            return False
        self._k = best
        self._stream.restart()
        trips.fence(self._stream)
        return True

    def _forecast(self, trip_s: float) -> Forecast:
        pace, draft_s = self.pace, self._guesser.usual_s or 0.0
        return Forecast(
            share=pace.share,
            trip_s=trip_s,
            gap_s=draft_s if pace.gap_s is None else pace.gap_s,
            draft_s=draft_s,
            legs=self._trips.members.plan.legs_per_token,
            leg_s=self._trips.leg_s,
            rounds_s=self._rounds_s,
        )
