"""Wordings for generated text about things that stay where they are: museums, bridges, telescopes, festivals.

The form is explained in :func:`bertvision.tasks.generated_words.parse_domain`. No statement hints
at another attribute of its domain, so that what a paragraph leaves out really cannot be answered.
"""

from __future__ import annotations

from bertvision.tasks.generated_words import parse_domain

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
