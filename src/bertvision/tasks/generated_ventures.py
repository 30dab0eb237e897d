"""Wordings for generated text about undertakings: expeditions, companies, orchestras, ships.

The form is explained in :func:`bertvision.tasks.generated_words.parse_domain`. No statement hints
at another attribute of its domain, so that what a paragraph leaves out really cannot be answered.
"""

from __future__ import annotations

from bertvision.tasks.generated_words import parse_domain

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
