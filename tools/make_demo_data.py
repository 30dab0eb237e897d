"""Write the demonstration's data: generated questions in the format of SQuAD 2.0.

``python tools/make_demo_data.py`` makes ``src/bertvision/tasks/data/demo.json.gz`` again, which
:mod:`bertvision.tasks.demo_data` reads; a test compares. Everything follows from the seed.

Names are put together from word lists, so that no encoder has met them. The last quarter of each
list belongs to ``dev``: its entities, people and towns share no name with ``train``. An article is
the chronicle of an invented town and has paragraphs from all domains, so that cutting off some
articles leaves every domain on both sides. A paragraph is about two entities of a domain: both have
people, places and numbers, so that the type of an answer does not give it away. What is stated of
whom is kept beside the text, so that "cannot be answered" is known and not guessed; no wording hints
at another attribute of its domain.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from random import Random
from typing import Any, Literal

from bertvision.core.errors import BadInput
from bertvision.tasks.demo_data import PATH

Split = Literal["train", "dev"]
Kind = Literal["stated", "nowhere", "other", "stranger", "foreign"]
"""How a question relates to its paragraph: the answer is stated; it is stated of neither entity; of
the other entity only (the hard kind); or the question is about an entity that does not occur, of
the same domain or of a foreign one."""

Squad = dict[str, Any]
"""A data set as the official JSON files have it."""

SHARES: dict[Kind, float] = {"stated": 0.62, "nowhere": 0.24, "other": 0.05, "stranger": 0.04, "foreign": 0.05}
FEWEST, MOST = 3, 6  # questions of one paragraph
FEWEST_ARTICLES = 8
LIMIT = 3000  # questions of a split: dev has towns for that many titles

PLANS = ((0, 3, 3), (0, 3, 2), (0, 2, 3), (1, 2, 2), (1, 2, 2))
"""Attributes stated of both entities, of the first only, of the second only: five or six facts. One
stated of both can only be told apart by the name, which a short tuning hardly learns: so not in all."""
MANY_FACTS = 6
MIXED_SHARE = 0.4  # of paragraphs: facts of both entities in any order
AGAIN_SHARE = 0.6  # of statements that go on about the same entity: "it" in place of the name
JOIN_SHARE = 0.35  # of those: joined to the sentence before
ASIDE_SHARE = 0.5  # of second entities: introduced with an aside
CLOSING_SHARE = 0.4  # of paragraphs with six facts: a last sentence without one, as all others have
HELD_SHARE = 0.5  # of dev's questions: in a wording that train never has


def _words(text: str) -> tuple[str, ...]:
    """A list of words, written so that it can be read."""
    return tuple(text.split())


FIRST_OF_NAME = _words(
    "Amber Silver Golden Iron Copper Crystal Velvet Scarlet Violet Green Blue White Grey Black Red Winter Summer "
    "Autumn Spring Morning Evening Midnight North South West Eastern High Old New Lower Upper Great Little Quiet "
    "Broad Long Royal Bright Wild Hidden Broken Silent Lonely Twin Seven Stone"
)
LAST_OF_NAME = _words(
    "Gate Harbour Heron Lantern Mountain River Valley Garden Forest Meadow Falcon Raven Eagle Swan Fox Wolf Bear "
    "Crown Anchor Arrow Bell Candle Castle Chapel Cloud Coast Corner Desert Dragon Feather Field Flame Hill Horse "
    "Island Lake Leaf Moon Oak Orchard Palm Pearl Pine Rose Sail Shield Star Tower Wheel Willow"
)
FIRST_NAMES = _words(
    "Clara Anna Maria Helen Ruth Laura Emma Alice Nora Julia Rosa Martha Ellen Grace Irene Lucy Sarah Vera Edith "
    "Thomas Peter Martin Oscar Hugo Victor Daniel Simon Walter Henry Arthur Felix Adam Paul Robert Karl Leo David "
    "Samuel Julian Edmund"
)
SURNAMES = _words(
    "Marsh Holt Stone Reed Frost Lane Hale Ward Brook Cole Drake Finch Grant Hart Kent Lowe Moss Nash Page Rice "
    "Shaw Todd Vance Webb York Barker Carter Dalton Fisher Gardner Harper Keller Lambert Mercer Norton Parker Quinn "
    "Russell Sutton Turner Vaughn Walker Abbott Bishop Crane Doyle Forbes Hobbs"
)
TOWN_STARTS = _words("Ash Bel Cran Dal Elm Fen Gar Hel Is Kel Lin Mar Nor Os Pem Ris Sel Tor Ul Ver Wes Bran Carl Stan")
TOWN_ENDS = _words("ford bury ton by wick ham field mouth stead ville burg dale holm worth port minster")

CLOSINGS = (
    "The two are often confused in older books.",
    "Both are described at length in the local press.",
    "Few people today know much about either of them.",
    "Letters from that time compare the two with some care.",
    "An old handbook praises both, though not in equal measure.",
    "It is no secret that the two have always been rivals.",
)
"""Sentences that state no fact, for paragraphs with few of them."""


@dataclass(frozen=True)
class Attribute:
    """Something that can be said of an entity, in several wordings, and asked in several others.

    ``{E}`` stands for the entity and ``{A}`` for the answer, which ``kind`` and ``detail`` tell how to
    draw (:meth:`Names.value`). ``held`` are questions for dev alone.
    """

    name: str
    kind: str
    detail: str
    says: tuple[str, ...]
    asks: tuple[str, ...]
    held: tuple[str, ...]


@dataclass(frozen=True)
class Domain:
    """A sort of entity: how its members are called, how a second one is introduced, what is said of them."""

    name: str
    called: str
    asides: tuple[str, ...]
    attributes: tuple[Attribute, ...]


def parse_domain(text: str) -> Domain:
    """Read the form the domains are written in.

    First line ``name | how members are called | asides``; then per attribute ``@name kind detail``,
    statements after ``-``, questions after ``?``, and questions held back for dev after ``!``.
    """
    head, *blocks = text.strip().split("\n@")
    name, called, *asides = (part.strip() for part in head.split("|"))
    return Domain(name, called, tuple(asides), tuple(_parse_attribute(block) for block in blocks))


def _parse_attribute(block: str) -> Attribute:
    head, *lines = block.splitlines()
    name, kind, detail = (*head.split(maxsplit=2), "")[:3]
    says, asks, held = (tuple(line[2:] for line in lines if line[0] == mark) for mark in "-?!")
    return Attribute(name, kind, detail, says, asks, held)


class Names:
    """Draws names and values for one split; no entity comes twice."""

    def __init__(self, rng: Random, split: Split) -> None:
        self.rng = rng
        self.split = split
        self.first_of_name = _share(FIRST_OF_NAME, split)
        self.surnames = _share(SURNAMES, split)
        self.towns = [start + end for start in _share(TOWN_STARTS, split) for end in TOWN_ENDS]
        self._used: set[str] = set()

    def entities(self, domain: Domain, count: int) -> list[str]:
        """New names that share no word with each other, so that a name tells them apart."""
        while True:
            firsts = self.rng.sample(self.first_of_name, count)
            lasts = self.rng.sample(LAST_OF_NAME, count)
            names = [domain.called.format(f"{a} {b}") for a, b in zip(firsts, lasts, strict=True)]
            if self._used.isdisjoint(names):
                self._used.update(names)
                return names

    def value(self, attribute: Attribute, taken: Collection[str]) -> str:
        """A value that the paragraph does not have yet: equal ones would make a wrong reading right."""
        while (value := self._draw(attribute)) in taken:
            continue
        return value

    def _draw(self, attribute: Attribute) -> str:
        match attribute.kind:
            case "person":
                return f"{self.rng.choice(FIRST_NAMES)} {self.rng.choice(self.surnames)}"
            case "place":
                return (attribute.detail or "{}").format(self.rng.choice(self.towns))
            case "number":
                return self._number(attribute.detail)
        assert attribute.kind == "choice", attribute
        return self.rng.choice(attribute.detail.split("|"))

    def _number(self, detail: str) -> str:
        """``90..980 metres`` or ``40..900 maps|clocks``; a year is a number without a unit."""
        bounds, _, units = detail.partition(" ")
        low, high = bounds.split("..")
        return f"{self.rng.randint(int(low), int(high))} {self.rng.choice(units.split('|'))}".strip()


def _share(words: Sequence[str], split: Split) -> Sequence[str]:
    """Three quarters for train, the rest for dev."""
    cut = len(words) * 3 // 4
    return words[:cut] if split == "train" else words[cut:]


MUSEUM = parse_domain("""
museum | the {} Museum | a smaller house with fewer guests | its younger rival | a museum with the same aims
@founder person
- {E} was founded by {A} with the money from a small inheritance.
- {E} owes its existence to its founder {A}, who bought the first rooms.
- It was {A} who set up {E} after years of private collecting.
? Who was the founder of {E}?
? Who established {E}?
? By whom was {E} set up?
! Who brought {E} into being?
@director person
- {E} is now run by its director {A}, a former teacher of drawing.
- {E} has had {A} as its head for several years.
- The present director of {E} is {A}, who answers every letter in person.
? Who is the director of {E}?
? Who is the present head of {E}?
? Which person runs {E} now?
! Who is in charge of {E} nowadays?
@opened number 1810..1899
- {E} first opened its doors in {A}, on a cold day in spring.
- {E} has welcomed visitors since {A}, with only a few quiet years.
- In {A}, after long delays, the public could enter {E} for the first time.
? When did {E} open?
? In which year were guests first admitted to {E}?
? Since when can people visit {E}?
! What was the opening year of {E}?
@material choice granite|red brick|limestone|white marble|sandstone|dark slate|concrete|pale wood
- {E} occupies a broad building made of {A} and designed for strong light.
- The walls of {E} are of {A}, which keeps the halls cool in summer.
- {E} has thick walls of {A} that need cleaning every ten years.
? What is {E} built of?
? Which material was used for the building of {E}?
? What is the house of {E} made from?
! What did the builders of {E} use as material?
@town place
- {E} stands in {A}, a short walk from the railway station.
- Travellers find {E} in {A}, where two old roads meet.
- {E} has always been in {A} and never wished to move.
? Where is {E}?
? In which town can one visit {E}?
? What is the location of {E}?
! To which town must one travel to see {E}?
@collection number 40..950 maps|clocks|masks|coins|drawings|swords
- {E} shows {A} to the public, most of them gifts.
- {E} keeps {A} in its cases and lends a few every summer.
- Altogether {A} belong to {E}, and each has its own card.
? How many objects does {E} own?
? What does the collection of {E} consist of?
? How large is the collection of {E}?
! How many items are held by {E}?
@closure choice a flood in the cellar|a broken roof|a strike of the guards|a lack of money|a fire in the attic|a storm
- {E} once had to close for a whole year because of {A}.
- {E} was closed for an entire season by {A}, as the records show.
- After {A}, {E} stayed shut for eleven months.
? Why was {E} shut for a time?
? What forced {E} to close?
? For what reason did {E} stay closed?
! What kept visitors out of {E} for so long?
""")

BRIDGE = parse_domain("""
bridge | the {} Bridge | a neighbour of similar shape | the next crossing | a bridge with far less traffic
@engineer person
- {E} was designed by {A}, whose first plans had been refused.
- The drawings for {E} came from {A}, then almost unknown.
- {E} made the name of {A}, who had planned every arch of it.
? Who was the engineer of {E}?
? Which person drew up the plans for {E}?
? Who thought out the shape of {E}?
! To whom do we owe the design of {E}?
@opened number 1840..1989
- {E} was opened to traffic in {A}, during a heavy shower.
- {E} has been in use since {A} without a single accident.
- In {A}, the first travellers crossed {E} in a long line.
? When was {E} opened?
? In which year did traffic on {E} begin?
? Since when has {E} been used?
! What year saw the opening of {E}?
@river place the River {}
- {E} crosses {A} at a place where the water is calm.
- Ships on {A} have to lower their masts to pass under {E}.
- {E} leads over {A} and carries two lanes of traffic.
? Which river does {E} cross?
? What water flows under {E}?
? Over which river was {E} built?
! What does {E} span?
@length number 90..980 metres
- {E} is {A} long from one bank to the other.
- {E} has a total length of {A}, if the ramps are counted.
- Walkers on {E} cover {A} before they reach the other side.
? How long is {E}?
? What distance does {E} cover?
? What length does {E} have?
! How far is it from one end of {E} to the other?
@material choice granite|steel|oak beams|cast iron|red brick|concrete|limestone|aluminium
- {E} was built of {A}, which was cheap at the time.
- {E} is a solid structure of {A} that has never moved.
- The builders of {E} chose {A}, against the advice of the mayor.
? What is {E} made of?
? Which material carries {E}?
? Out of what was {E} constructed?
! What was used to build {E}?
@cost number 3..95 million crowns
- {E} cost {A}, twice as much as the council had hoped.
- For {E} the taxpayers had to find {A} within a few years.
- {E} was paid for with {A} from a public loan.
? How expensive was {E}?
? How much money was spent on {E}?
? What was the price of {E}?
! What sum did {E} require?
@repair choice cracks in the deck|rust on the cables|damage by ice|a collision with a barge|an earthquake|heavy trucks
- {E} had to be repaired because of {A}, and drivers were angry.
- {E} suffered from {A} and was under repair for several weeks.
- It was {A} that made urgent work on {E} necessary.
? Why was work on {E} needed?
? What was the reason for the repair of {E}?
? What had harmed {E}?
! Why did {E} have to be mended?
""")

TELESCOPE = parse_domain("""
telescope | the {} Telescope | a slightly younger instrument | a rival built for the same task | the smaller of the two
@designer person
- {E} was invented by {A}, who had studied glass for years.
- The optics of {E} go back to {A}, a patient worker.
- {E} follows a design of {A} that others thought impossible.
? Who designed {E}?
? Who had the idea for {E}?
? Which person conceived {E}?
! From whom does the design of {E} come?
@nights number 90..330 nights
- {E} is used on {A} a year, whenever the sky is clear.
- {E} works for {A} every year and rests in the others.
- In a normal year the weather gives {E} only {A}, to everyone's regret.
? How many nights a year is {E} used?
? On how many nights does {E} work?
? How often is {E} in use?
! For how much of the year does {E} observe?
@site place
- {E} was set up near {A}, where the nights are very dark.
- {E} looks at the sky from a hill outside {A}, far from any factory.
- The dome of {E} rises near {A} and can be seen for miles.
? Where was {E} put?
? Near which town is {E}?
? What is the site of {E}?
! Close to what place was {E} erected?
@light number 1880..1999
- {E} saw its first star in {A}, after three failed attempts.
- {E} has been in use since {A} and still works every night.
- In {A}, the first picture was taken with {E}.
? When did {E} begin to work?
? In which year was {E} first used?
? Since when has {E} been in service?
! In what year did {E} start its observations?
@mirror number 60..890 centimetres
- {E} has a mirror of {A} that is polished twice a year.
- The mirror of {E} measures {A} and took ages to cool.
- {E} gathers light over a width of {A}, enough for faint objects.
? How wide is the mirror of {E}?
? What is the diameter of {E}?
? How large is the mirror of {E}?
! What size does the mirror of {E} have?
@discovery choice a dwarf planet|a double star|a new comet|a ring of dust|three small moons|a distant galaxy|a nebula
- {E} became famous when it revealed {A} that nobody had expected.
- Astronomers used {E} to find {A}, which was in all the papers.
- {E} was the first to show {A}, and students still talk of it.
? What was discovered with {E}?
? What did {E} find?
? Which discovery was made by {E}?
! What was seen for the first time through {E}?
@trouble choice fog|street lamps|vibrations from trains|loose screws|swarms of insects|sand in the gears|lightning
- {E} lost many nights because of {A}, to everyone's regret.
- The work with {E} was long disturbed by {A}, as the diaries tell.
- {E} gave poor pictures at first, and the cause was {A}.
? What caused trouble at {E}?
? What made it hard to work with {E}?
? What disturbed the work with {E}?
! What was the problem with {E}?
""")

FESTIVAL = parse_domain("""
festival | the {} Festival | a quieter event | a competitor for the same guests | the older of the two
@organiser person
- {E} is organised by {A}, who knows every artist by name.
- {E} lies in the hands of {A} and a few helpers.
- Every detail of {E} is planned by {A}, often at night.
? Who runs {E}?
? Who prepares {E}?
? Which person is the organiser of {E}?
! Who takes care of the planning of {E}?
@season choice early May|late May|early June|late June|mid July|early August|late August|September|October
- {E} is always held in {A}, when the days are mild.
- {E} has its fixed date in {A}, whatever the weather.
- Each year in {A}, the bells ring for {E}.
? At what time of the year is {E} held?
? In which part of the year does one celebrate {E}?
? In which month does {E} fall?
! When in the year can one attend {E}?
@town place
- {E} takes place in {A}, mostly in the open air.
- {E} fills the streets of {A} with music and noise.
- {E} brings guests to {A}, where every bed is taken.
? Where is {E} held?
? Which town is home to {E}?
? In what place can one attend {E}?
! Where do people go for {E}?
@first number 1900..1999
- {E} was first held in {A}, in front of a tiny crowd.
- {E} has been a tradition since {A}, rain or shine.
- In {A}, {E} was celebrated for the first time.
? When did {E} begin?
? In which year was the first edition of {E}?
? Since when has {E} existed?
! What was the first year of {E}?
@guests number 4..95 thousand visitors
- {E} draws {A} in a normal year, and more in good weather.
- Last time {A} came to {E}, which pleased the bakers.
- {E} counted {A} at its latest edition, fewer than planned.
? How many people come to {E}?
? What is the attendance of {E}?
? How many guests does {E} have?
! How big is the audience of {E}?
@dish choice smoked eel|plum dumplings|onion soup|honey cakes|roasted chestnuts|lamb stew|pickled herring|cherry pie
- {E} is known for its {A}, sold from wooden carts.
- Nobody leaves {E} without a plate of {A}, as custom demands.
- {E} has a special dish, {A}, which is made in huge pots.
? What do people eat at {E}?
? Which food is typical of {E}?
? What is served at {E}?
! What can hungry guests expect at {E}?
@cancelled choice a storm|a cattle disease|a quarrel over money|a power failure|a lack of singers|a forest fire|a flood
- {E} was cancelled once because of {A}, and tickets were paid back.
- {E} fell victim to {A} in one sad year.
- On one occasion {A} made it impossible to hold {E}.
? Why was {E} called off?
? What prevented {E} in one year?
? What was the reason that {E} did not happen once?
! What got in the way of {E}?
""")


EXPEDITION = parse_domain("""
expedition | the {} Expedition | a rival party | a second attempt of the same decade | a much poorer undertaking
@leader person
- {E} was led by {A}, who had never seen snow before.
- {E} had {A} as its leader, a calm and stubborn person.
- At the head of {E} was {A}, chosen by a narrow vote.
? Who was the leader of {E}?
? Who was at the head of {E}?
? Which person led {E}?
! Under whom did {E} travel?
@sponsor person
- {E} was paid for by {A}, who stayed at home.
- The money for {E} was given by {A}, against a share of the fame.
- {E} would have failed without the money of {A}, as everyone admitted.
? Who paid the costs of {E}?
? Who gave the money for {E}?
? Whose money made {E} possible?
! Who financed {E}?
@start place
- {E} set out from {A} with a brass band playing.
- {E} left {A} at dawn, before the crowd had gathered.
- The last letters from {E} were posted in {A}, where it began its march.
? Where did {E} start?
? From which town did {E} depart?
? What was the starting point of {E}?
! What place did {E} leave behind?
@year number 1820..1929
- {E} was under way in {A}, a year of hard frost.
- {E} dates from {A}, when maps were still poor.
- In {A}, after a long debate, {E} finally got under way.
? When did {E} happen?
? In which year did {E} travel?
? What was the year of {E}?
! When was {E} on its way?
@goal choice a lost city|the source of a river|a northern sea route|a fallen meteorite|a rare orchid|an active volcano
- {E} was looking for {A}, which only old songs mention.
- The purpose of {E} was to find {A} before anybody else.
- {E} hoped to come upon {A}, though experts had doubts.
? What did {E} search for?
? What was the aim of {E}?
? What did the members of {E} want to discover?
! What was {E} after?
@members number 9..78 people|men and women|travellers
- {E} consisted of {A}, carefully chosen from many volunteers.
- {E} counted {A}, half of them without any training.
- With {A}, {E} was larger than most of its kind.
? How many took part in {E}?
? What was the size of {E}?
? How big was the team of {E}?
! How many members did {E} have?
@return choice scurvy|a mutiny|early snow|spoiled food|a lack of water|swamp fever|broken sledges|thin ice
- {E} had to turn back because of {A}, close to success.
- {E} was stopped by {A} and never tried again.
- In the end it was {A} that defeated {E}.
? Why did {E} give up?
? What made {E} return early?
? What brought {E} to an end?
! What was the reason for the failure of {E}?
""")

COMPANY = parse_domain("""
company | {} Works | a competitor | a firm of the same size | a younger company with bold plans
@founder person
- {E} was founded by {A} with borrowed money and two old desks.
- {E} had its founder in {A}, a retired nurse.
- It was {A} who started {E} and wrote its first rules.
? Who was the founder of {E}?
? Who established {E}?
? By whom was {E} started?
! Who brought {E} to life?
@chief person
- {E} is now managed by {A}, who walks through the halls daily.
- The current manager of {E} is {A}, a friend of plain words.
- {E} takes its orders from {A}, its manager since last autumn.
? Who is the manager of {E}?
? Who manages {E} today?
? Which person runs {E} at present?
! Who is in charge at {E}?
@town place
- {E} has its main office in {A}, close to the canal.
- {E} is based in {A}, although few workers live there.
- Visitors to {E} have to travel to {A}, as there is no branch.
? Where is {E} located?
? In which town does {E} have its seat?
? What is the home of {E}?
! Where are the headquarters of {E}?
@founded number 1850..1979
- {E} was entered in the register in {A}, on a rainy Monday.
- {E} has been in business since {A} and is proud of it.
- In {A}, {E} sold its very first goods.
? When did {E} start out?
? In which year did {E} begin?
? Since when has {E} existed?
! How far back does the history of {E} go?
@product choice garden chairs|door locks|paper bags|oil lamps|piano strings|rubber boots|window glass|fishing nets|soap
- {E} makes {A} and sells its goods through small shops.
- {E} became known for its {A}, praised for fair prices.
- The workers at {E} produce {A}, still mostly by hand.
? What does {E} manufacture?
? What are the goods of {E}?
? What can one buy from {E}?
! What comes out of the factory of {E}?
@staff number 35..980 workers|employees
- {E} employs {A}, and many of them are related.
- {E} gives work to {A} in two shifts.
- Every winter {E} invites its {A} to a large dinner.
? How many people work for {E}?
? What is the number of staff at {E}?
? How large is the workforce of {E}?
! How many are on the payroll of {E}?
@loss choice a patent dispute|a warehouse fire|rising steel prices|a failed merger|a strike|stolen designs|bad debts
- {E} nearly went bankrupt because of {A}, and wages were cut.
- {E} lost half its value through {A}, to the joy of its rivals.
- For a while {A} threatened to ruin {E}.
? What almost destroyed {E}?
? Why did {E} get into trouble?
? What was the cause of the crisis at {E}?
! What put {E} in danger?
""")

ORCHESTRA = parse_domain("""
orchestra | the {} Orchestra | a smaller group of players | its friendly rival | an ensemble of amateurs
@conductor person
- {E} is conducted by {A}, who never uses a score.
- {E} plays under {A}, loved for short rehearsals.
- Since last season {A} has stood in front of {E} with a silver baton.
? Who is the conductor of {E}?
? Who directs the musicians of {E}?
? Under whose direction does {E} perform?
! Who leads {E} on stage?
@composer person
- {E} mostly plays pieces by {A}, which are rarely heard elsewhere.
- {E} made its name with the music of the composer {A}, said to be difficult.
- The favourite composer of {E} is {A}, whose marches end every concert.
? Whose music does {E} play?
? Which composer is {E} known for?
? Whose pieces does {E} like to play?
! Who wrote the works that {E} prefers?
@hall place the {} Hall
- {E} gives its concerts in {A}, which has wooden seats.
- The home of {E} is {A}, famous for its echo.
- {E} rehearses and performs in {A}, in spite of the draught.
? Where does {E} play?
? In which building can one hear {E}?
? Which hall is used by {E}?
! Where do the concerts of {E} take place?
@debut number 1870..1989
- {E} gave its first concert in {A}, with borrowed instruments.
- {E} has existed since {A} and has kept its name.
- In {A}, {E} began its work in front of eleven listeners.
? When did {E} come into being?
? In which year did {E} begin?
? Since when has {E} been active?
! From what year does {E} date?
@soloist choice the harp|the cello|the oboe|the trumpet|the bassoon|the viola|the organ|the clarinet|the flute
- {E} is admired for its soloist on {A}, a shy student.
- In most programmes of {E} the leading part belongs to {A}.
- {E} puts {A} in the foreground, which surprises new listeners.
? Which instrument stands out in {E}?
? What instrument is {E} praised for?
? Which instrument has the main role in {E}?
! Which instrument dominates in {E}?
@prize number 15..950 thousand crowns
- {E} once won {A} in a radio contest and bought new chairs.
- {E} was awarded {A} by a jury of five, without debate.
- A prize of {A} went to {E} after a close vote.
? How much did {E} win?
? What sum was given to {E}?
? How high was the prize for {E}?
! How much money did {E} receive?
@break choice a lawsuit|stage fright|a bus accident|unpaid bills|a lost trunk|the flu|a wedding|a broken heating
- {E} had to cancel a tour because of {A}, much to its shame.
- {E} gave up a journey abroad after {A}, as a poster explains.
- A tour of {E} came to nothing, and the reason was {A}.
? Why did {E} not go on tour?
? What ruined the travel plans of {E}?
? What was the reason that {E} cancelled its tour?
! What kept {E} from travelling?
""")

SHIP = parse_domain("""
ship | the {} | a sister ship | a slower vessel | a ship of the same line
@captain person
- {E} sailed under {A}, who could not swim.
- The captain of {E} was {A}, feared for sudden rages.
- {E} obeyed {A}, who had gone to sea at fourteen.
? Who commanded {E}?
? Who was in command on {E}?
? Which person was the master of {E}?
! Who gave the orders on board {E}?
@crew number 14..95 sailors
- {E} had a crew of {A}, few of them experienced.
- {E} was worked by {A}, who slept in narrow bunks.
- It took {A} to handle {E} in bad weather.
? How many sailors served on {E}?
? How large was the crew of {E}?
? How many sailors did {E} have?
! How many people worked on board {E}?
@yard place
- {E} was built in {A}, where the wood was cheap.
- {E} came from a yard in {A} that no longer exists.
- The keel of {E} was laid in {A}, under a leaking roof.
? Where was {E} constructed?
? In which town was {E} made?
? From what place did {E} come?
! What is the birthplace of {E}?
@launched number 1790..1909
- {E} was launched in {A}, with a bottle of cheap wine.
- {E} first touched the water in {A}, a week too late.
- In {A}, to loud applause, {E} left the dock for the first time.
? When was {E} put to sea?
? In which year was {E} ready to sail?
? What year did {E} enter service?
! When did {E} begin its life at sea?
@cargo choice tea|salted fish|copper ore|timber|wool|coffee|raw sugar|coal|olive oil|cotton
- {E} carried {A} on every voyage, and little else.
- {E} was built to transport {A}, as the deep hold shows.
- The usual load of {E} was {A}, packed in numbered boxes.
? What was the cargo of {E}?
? What goods did {E} transport?
? What was stored in the hold of {E}?
! With what was {E} loaded?
@length number 28..160 metres
- {E} was {A} long and hard to steer in a narrow channel.
- {E} measured {A} from bow to stern, a record then.
- With its {A}, {E} was too large for most docks.
? How long was {E}?
? What was the length of {E}?
? What were the dimensions of {E}?
! How far was it from one end of {E} to the other?
@loss choice a hidden reef|a boiler explosion|thick fog|a drunken pilot|a hurricane|an iceberg|a leaking hull|pirates
- {E} was lost because of {A}, but everyone on board survived.
- {E} met its end through {A}, within sight of land.
- In a single night {A} put an end to {E}.
? Why did {E} sink?
? What destroyed {E}?
? What was the cause of the loss of {E}?
! What proved fatal to {E}?
""")


Claim = tuple[str, Attribute]


@dataclass(frozen=True)
class Fact:
    """A stated value, and the character it starts at in the context."""

    entity: str
    attribute: Attribute
    answer: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question; ``fact`` is the answer if ``kind`` is stated, else one that looks like it, if there is one."""

    text: str
    kind: Kind
    entity: str
    attribute: Attribute
    fact: Fact | None


@dataclass(frozen=True)
class Paragraph:
    """A context with everything it states and everything that is asked of it."""

    domain: Domain
    entities: tuple[str, ...]
    context: str
    facts: tuple[Fact, ...]
    questions: tuple[Question, ...]


def write_paragraph(domain: Domain, foreign: Domain, kinds: Sequence[Kind], names: Names) -> Paragraph:
    """A paragraph with one question per wanted kind; some may be about something of a foreign domain."""
    first, second, stranger = names.entities(domain, 3)
    story = _Story(domain, names)
    for entity, attribute in _choose_claims(domain, first, second, names.rng):
        story.tell(entity, attribute)
    story.close()
    pools = _question_pools(domain, story.facts, (first, second))
    pools["stranger"] = [(stranger, a) for a in dict.fromkeys(fact.attribute for fact in story.facts)]
    pools["foreign"] = [(name, a) for name in names.entities(foreign, 1) for a in foreign.attributes]
    for pool in pools.values():
        names.rng.shuffle(pool)
    questions = [_ask(kind, pools, story.facts, names) for kind in kinds]
    return Paragraph(domain, (first, second), story.context, tuple(story.facts), tuple(questions))


def _choose_claims(domain: Domain, first: str, second: str, rng: Random) -> list[Claim]:
    """What will be stated of whom: one entity after the other, or mixed."""
    of_first, of_second = _choose_attributes(domain, rng)
    rng.shuffle(of_first)
    rng.shuffle(of_second)
    claims = [(first, attribute) for attribute in of_first] + [(second, attribute) for attribute in of_second]
    if rng.random() < MIXED_SHARE:
        rng.shuffle(claims)
    return claims


def _choose_attributes(domain: Domain, rng: Random) -> tuple[list[Attribute], list[Attribute]]:
    """Attributes of the two entities, at least one kind of value (person, number ...) being in both."""
    while True:
        both, only_first, only_second = rng.choice(PLANS)
        chosen = rng.sample(domain.attributes, both + only_first + only_second)
        of_first, of_second = chosen[: both + only_first], chosen[:both] + chosen[both + only_first :]
        if {attribute.kind for attribute in of_first} & {attribute.kind for attribute in of_second}:
            return of_first, of_second


class _Story:
    """A context that grows by one statement at a time; each answer's place is noted as it is written."""

    def __init__(self, domain: Domain, names: Names) -> None:
        self.domain = domain
        self.names = names
        self.rng = names.rng
        self.context = ""
        self.facts: list[Fact] = []
        self._wordings: set[str] = set()

    def tell(self, entity: str, attribute: Attribute) -> None:
        """State a new value of an attribute, in a wording that the paragraph does not have yet."""
        answer = self.names.value(attribute, {fact.answer for fact in self.facts})
        wording = self.rng.choice([wording for wording in attribute.says if wording not in self._wordings])
        self._wordings.add(wording)
        sentence = self._sentence(wording, entity)
        start = len(self.context) + sentence.index("{A}")
        self.context += sentence.replace("{A}", answer)
        self.facts.append(Fact(entity, attribute, answer, start))

    def close(self) -> None:
        """A last sentence that says nothing, to make up for few facts."""
        if len(self.facts) < MANY_FACTS or self.rng.random() < CLOSING_SHARE:
            self.context += " " + self.rng.choice(CLOSINGS)

    def _sentence(self, wording: str, entity: str) -> str:
        """What to append, with ``{A}`` still open.

        An entity that the sentence before was about may be "it"; a second entity may be introduced
        with an aside.
        """
        told = [fact.entity for fact in self.facts]
        leads = wording.startswith("{E} ")
        if leads and told[-1:] == [entity] and self.rng.random() < AGAIN_SHARE:
            return self._again(wording)
        if leads and told and entity not in told and self.rng.random() < ASIDE_SHARE:
            entity = f"{entity}, {self.rng.choice(self.domain.asides)},"
        sentence = wording.replace("{E}", entity)
        return (" " if told else "") + sentence[0].upper() + sentence[1:]

    def _again(self, wording: str) -> str:
        """Go on with "it": in a sentence of its own, or in the one before unless that is joined already."""
        last = self.context.rpartition(". ")[2]
        if self.rng.random() < JOIN_SHARE and ", and it " not in last:
            self.context = self.context[:-1]
            return ", and it" + wording[3:]
        return " It" + wording[3:]


def _question_pools(domain: Domain, facts: Sequence[Fact], entities: Collection[str]) -> dict[Kind, list[Claim]]:
    """Everything that can be asked of the paragraph's entities, by kind."""
    stated = {(fact.entity, fact.attribute.name) for fact in facts}
    known = {name for _, name in stated}
    missing = [(e, a) for e in sorted(entities) for a in domain.attributes if (e, a.name) not in stated]
    return {
        "stated": [(fact.entity, fact.attribute) for fact in facts],
        "nowhere": [(e, a) for e, a in missing if a.name not in known],
        "other": [(e, a) for e, a in missing if a.name in known],
    }


def _ask(kind: Kind, pools: dict[Kind, list[Claim]], facts: Sequence[Fact], names: Names) -> Question:
    """One question of a kind, each claim at most once; a train wording, or for dev perhaps a held one."""
    if not pools[kind]:
        kind = "nowhere" if kind == "stated" else "stated"
    entity, attribute = pools[kind].pop()
    held = names.split == "dev" and names.rng.random() < HELD_SHARE
    text = names.rng.choice(attribute.held if held else attribute.asks).replace("{E}", entity)
    alike = [fact for fact in facts if fact.attribute == attribute]
    fact = next((fact for fact in alike if fact.entity == entity), alike[0] if alike else None)
    return Question(text, kind, entity, attribute, fact)


DOMAINS = (MUSEUM, EXPEDITION, BRIDGE, COMPANY, TELESCOPE, SHIP, FESTIVAL, ORCHESTRA)


def generate(seed: int = 0, questions: int = 1500, dev: int = 250) -> tuple[Squad, Squad]:
    """(train, dev) with that many questions each; they share no entity, person or town."""
    return _split("train", seed, questions), _split("dev", seed, dev)


def articles(split: Split, seed: int, questions: int) -> dict[str, list[Paragraph]]:
    """Paragraphs by title, with all that is known about them.

    ``dev`` has its own stream of random numbers, so that it stays the same whatever train's size.
    """
    if not FEWEST <= questions <= LIMIT:
        raise BadInput(
            f"generated {split} questions: got {questions}, expected {FEWEST} to {LIMIT}; choose another number"
        )
    rng = Random(2 * seed + (split == "dev"))
    names = Names(rng, split)
    sizes = _sizes(questions, rng)
    titles = rng.sample(names.towns, min(len(sizes), max(FEWEST_ARTICLES, len(sizes) // len(DOMAINS))))
    kinds = iter(_deck(questions, rng))
    result: dict[str, list[Paragraph]] = {f"Chronicle of {town}": [] for town in titles}
    for size, title, domain in zip(sizes, _titles(list(result), len(sizes)), cycle(DOMAINS), strict=False):
        foreign = rng.choice([other for other in DOMAINS if other != domain])
        result[title].append(write_paragraph(domain, foreign, list(islice(kinds, size)), names))
    return result


def _sizes(questions: int, rng: Random) -> list[int]:
    """Questions per paragraph, 3 to 6 and 4.5 on average, with exactly the wanted sum."""
    sizes = [FEWEST] * max(1, round(questions / ((FEWEST + MOST) / 2)))
    while sum(sizes) < questions:
        sizes[rng.choice([i for i, size in enumerate(sizes) if size < MOST])] += 1
    return sizes


def _deck(questions: int, rng: Random) -> list[Kind]:
    """The kinds of all questions, in exact shares, shuffled."""
    counts = {kind: round(share * questions) for kind, share in SHARES.items() if kind != "stated"}
    deck: list[Kind] = [kind for kind, count in counts.items() for _ in range(count)]
    deck += ["stated"] * (questions - len(deck))
    rng.shuffle(deck)
    return deck


def _titles(titles: Sequence[str], paragraphs: int) -> list[str]:
    """The title of each paragraph: consecutive ones share it, so that an article gets all domains."""
    return [titles[i * len(titles) // paragraphs] for i in range(paragraphs)]


def _split(split: Split, seed: int, questions: int) -> Squad:
    ids = (f"{split}-{seed}-{number}" for number in count())
    data = [
        {"title": title, "paragraphs": [_paragraph(paragraph, ids) for paragraph in paragraphs]}
        for title, paragraphs in articles(split, seed, questions).items()
    ]
    return {"version": "v2.0", "data": data}


def _paragraph(paragraph: Paragraph, ids: Iterator[str]) -> Squad:
    return {"context": paragraph.context, "qas": [_question(question, next(ids)) for question in paragraph.questions]}


def _question(question: Question, id_: str) -> Squad:
    """One question as the official files have it; a look-alike answer is a plausible one."""
    fact, impossible = question.fact, question.kind != "stated"
    found = [{"text": fact.answer, "answer_start": fact.start}] if fact else []
    row: Squad = {"id": id_, "question": question.text, "answers": [], "is_impossible": impossible}
    row["plausible_answers" if impossible else "answers"] = found
    return row


def document(seed: int = 0) -> str:
    """What is shipped: both files by name, as one JSON text."""
    train, dev = generate(seed)
    return json.dumps({"train.json": train, "dev.json": dev})


if __name__ == "__main__":
    PATH.write_bytes(gzip.compress(document().encode("utf-8"), mtime=0))
    print(f"{PATH}: {PATH.stat().st_size:,} bytes")
