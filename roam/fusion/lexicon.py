"""Word lists of the fusion rules."""

from __future__ import annotations

from typing import Final


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as plain text."""
    return frozenset(text.split())


_COUNTING: Final = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty"""
ABBREVIATIONS = word_set(
    """mr mrs ms dr prof st mt jr sr vs no approx etc e.g i.e a.m p.m u.s u.k ph.d inc ltd co dept ave blvd"""
)

STOP_WORDS = word_set(
    """a an the of in on at to for from by with as and or but is are was were be been being has have had do does did
    it its this that these those their them they he she his her him i my me user user's users who which what there
    when while so than then also very really quite just now currently some"""
)
NUMBER_WORDS = {word: str(value) for value, word in enumerate(_COUNTING.split())} | {
    "second": "2nd",
    "third": "3rd",
    "fourth": "4th",
    "fifth": "5th",
    "sixth": "6th",
    "seventh": "7th",
    "eighth": "8th",
    "ninth": "9th",
    "tenth": "10th",
    "twice": "2",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "hundred": "100",
    "thousand": "1000",
}
NEGATIONS = word_set("""no not never none neither nor without nothing nobody nowhere cannot hardly""")

PAST: Final = {
    "is": "was", "are": "were", "has": "had", "have": "had", "does": "did", "do": "did", "can": "could",
    "can't": "couldn't", "cannot": "could not", "isn't": "wasn't", "aren't": "weren't", "hasn't": "hadn't",
    "doesn't": "didn't", "don't": "didn't", "will": "would", "won't": "wouldn't", "keeps": "kept", "gets": "got",
    "goes": "went", "runs": "ran", "swims": "swam", "drives": "drove", "rides": "rode", "eats": "ate",
    "drinks": "drank", "sleeps": "slept", "reads": "read", "writes": "wrote", "sings": "sang", "thinks": "thought",
    "feels": "felt", "finds": "found", "takes": "took", "makes": "made", "gives": "gave", "spends": "spent",
    "pays": "paid", "says": "said", "buys": "bought", "sells": "sold", "teaches": "taught", "wears": "wore",
    "wakes": "woke", "rises": "rose", "leaves": "left", "sits": "sat", "stands": "stood", "sees": "saw",
    "knows": "knew", "grows": "grew", "flies": "flew", "speaks": "spoke", "puts": "put", "lets": "let", "cuts": "cut",
    "hits": "hit", "bets": "bet", "costs": "cost", "loses": "lost", "wins": "won", "builds": "built", "sends": "sent",
    "brings": "brought", "catches": "caught", "fights": "fought", "holds": "held", "tells": "told", "meets": "met",
    "means": "meant", "leads": "led", "lies": "lay", "begins": "began", "chooses": "chose", "draws": "drew",
    "falls": "fell", "forgets": "forgot", "hears": "heard", "hides": "hid", "shuts": "shut", "skis": "skied",
    "throws": "threw", "understands": "understood", "rents": "rented", "sets": "set", "quits": "quit", "bites": "bit",
    "prefers": "preferred",
    "refers": "referred",
    "becomes": "became", "comes": "came", "dreads": "dreaded", "shoots": "shot", "steals": "stole",
    "sticks": "stuck", "sweeps": "swept", "swears": "swore", "weaves": "wove", "knits": "knitted",
}  # fmt: skip
UNCHANGING: Final = word_set(
    """was were had did could would should might must may used couldn't wouldn't didn't hadn't wasn't weren't shouldn't
    mustn't ought"""
)
ADVERBS: Final = word_set(
    """always never usually often sometimes still only also just really rarely seldom mostly mainly currently now
    regularly generally normally no longer hardly even once strongly completely totally actually typically fully
    quite"""
)
NAMES_LIKE_VERBS: Final = word_set(
    """Agnes Alexis Amos Anders Andreas Boris Carlos Charles Chris Curtis Dennis Dimitris Doris Elias Francis
    Giorgos Gladys Hans Hermes Ines Inês Inés Iris James Jens Jonas Jules Klaas Lars Lewis Lois Louis Lucas
    Luis Lukas Mads Mathias Matthias Morris Moses Nicholas Nicolas Niels Niklas Nikolas Nikos Nils Odysseas
    Otis Phyllis Silas Thomas Tobias Tomas Travis Yannis Kostas Jared Ahmed Mohamed Mohammed Muhammad Alfred
    Fred Ned Ted Waleed Rashed Hamed"""
)
"""Given names that end as a third-person or past verb does."""

NOT_VERBS: Final = word_set("""always sometimes perhaps besides afterwards nowadays days its his this""")
THIRD: Final = {"have": "has", "do": "does", "am": "is", "don't": "doesn't", "haven't": "hasn't", "go": "goes"}
PAST_BASE: Final = frozenset(PAST.values()) | UNCHANGING | word_set("""been began bought came chose""")
SAME_IN_PAST: Final = word_set("""put let cut hit bet cost read set quit shut""")
MODALS: Final = word_set("""can can't cannot will won't would could should may might must shall""")
COORDINATED: Final = word_set(
    """am have do go live work drive own keep use take eat drink play like love hate run swim read write make want need
    prefer get wear pay sleep buy sell teach speak study"""
)

NO_REFINEMENT = word_set("""and or but than more less over under least most almost half""")
PEOPLE: Final = word_set(
    """son daughter child kid wife husband partner spouse brother sister mother father mum mom dad grandmother
    grandfather grandma grandpa aunt uncle cousin nephew niece friend boyfriend girlfriend fiance fiancee roommate
    flatmate colleague boss neighbour neighbor stepson stepdaughter twin mother-in-law father-in-law sister-in-law
    brother-in-law family parents"""
)
OCCUPATIONS: Final = word_set(
    """nurse chef intern cook architect analyst partner pilot clerk student lead guide barista apprentice surgeon
    diplomat priest monk nun scientist mechanic model coach judge midwife athlete accountant consultant assistant
    attendant lieutenant sergeant captain secretary freelance freelancer trainee chemist paramedic vet graduate head ceo
    cto au-pair tutor plumber electrician butcher author"""
)
NOT_OCCUPATIONS: Final = word_set(
    """smoker drinker vegetarian beginner runner swimmer member lover user sister brother mother father daughter
    neighbour neighbor believer eater hater sleeper riser starter newcomer fan person winner loser owner number
    commuter reader supporter voter donor bird owl twin pessimist optimist perfectionist pacifist humanitarian
    atheist realist idealist minimalist feminist tourist
    buddhist baptist methodist christian introvert extrovert regular stranger newcomer teetotaller partner's cyclist"""
) - {"owner"}
ANIMALS: Final = word_set(
    """dog cat puppy kitten horse rabbit hamster parrot budgie bird fish goldfish tortoise turtle snake lizard gecko
    pony donkey goat sheep cow pig hen rooster duck ferret rat mouse pet dachshund labrador terrier"""
)
_COUNTRY_NAMES: Final = (
    "Argentina|Australia|Austria|Bangladesh|Belgium|Bolivia|Brazil|Bulgaria|Cambodia|Cameroon|Canada|Chile|China|Colombia"
    "|Croatia|Cuba|Cyprus|Czechia|Denmark|Ecuador|Egypt|Estonia|Ethiopia|Finland|France|Germany|Ghana|Greece|Hungary"
    "|Iceland|India|Indonesia|Iran|Iraq|Ireland|Israel|Italy|Jamaica|Japan|Jordan|Kenya|Latvia|Lebanon|Lithuania"
    "|Malaysia|Malta|Mexico|Morocco|Nepal|Netherlands|New Zealand|Nigeria|Norway|Pakistan|Peru|Philippines|Poland"
    "|Portugal|Qatar|Romania|Russia|Saudi Arabia|Scotland|Senegal|Serbia|Slovakia|Slovenia|South Africa|South Korea"
    "|Spain|Sri Lanka|Sweden|Switzerland|Syria|Taiwan|Tanzania|Thailand|Tunisia|Turkey|UAE|UK|USA|US|Uganda|Ukraine"
    "|United Kingdom|United States|Uruguay|Venezuela|Vietnam|Wales|Zambia|Zimbabwe"
)
COUNTRIES: Final = frozenset(_COUNTRY_NAMES.split("|"))
EVERYDAY_VERBS: Final = word_set(
    """ate dined visited attended donated phoned rang baked cooked practised practiced swam jogged missed hosted
    babysat mowed watered cleaned washed reinstalled reinstall returned volunteered performed cycled biked
    bowled fished skated overslept exercised ironed vacuumed hoovered complained tutored sang danced
    streamed restarted roasted grilled played watched failed walked groomed tipped fainted late asleep
    led served phoned skyped texted jammed rehearsed"""
)
CONSUMABLES: Final = word_set(
    """food meal breakfast brunch lunch dinner supper snack snacks coffee tea beer wine drink drinks pizza sushi burger
    burgers sandwich salad soup noodles ramen curry takeaway takeout bread loaf cake cookies pastry pastries sourdough
    groceries milk cheese fruit vegetables flowers roses soil seeds ticket tickets dessert chocolate ice-cream juice
    tacos taco bibimbap thai pasta rice kebab falafel dumplings pancakes croissant croissants doughnuts donuts chips
    toothpaste shampoo soap batteries detergent petrol fuel stamps candles"""
)
OCCASIONS: Final = CONSUMABLES | word_set(
    """call lesson session class migraine headache nosebleed haircut massage meeting argument appointment check-up
    checkup picnic barbecue nap nightmare cold flu date sleepover walk swim run hike workout visit visitors visitor
    party blood talk lift ride taxi bus train delivered charged sick injection jab shot cramp seizure"""
)
RARE_EVENTS: Final = word_set(
    """surgery operation operated marathon born birth wedding married divorced divorce renovated renovation repainted
    graduated degree diploma tattoo tooth teeth moved trek pilgrimage honeymoon funeral died emigrated retired proposed
    engaged diagnosed twins adopted hired fired promoted safari cruise expedition summit abroad travelled traveled trip
    holiday vacation transplant citizenship thesis phd award medal championship"""
)
TIME_WORDS: Final = word_set(
    """spring summer autumn winter morning mornings evening evenings night nights weekend weekends afternoon year years
    month months week weeks day days january february march april may june july august september october november
    december childhood past general"""
)
FUNCTION_WORDS: Final = word_set(
    """a an the of in on at to for from by with as and or but is are was were that after since"""
)
FEMALE: Final = word_set(
    """mother sister daughter wife aunt girlfriend grandmother mother-in-law sister-in-law niece"""
)
MALE: Final = word_set("""father brother son husband uncle boyfriend grandfather father-in-law brother-in-law nephew""")
PLAIN_VERBS: Final = word_set(
    """has is was does goes gets takes makes had did can could will wants likes needs believes thinks plans
    prefers hopes sees knows works lives loves hates means says owns"""
)
COMPARED: Final = word_set("""best worst most least same first last only whole""")
PHRASE_ENDS: Final = FUNCTION_WORDS | word_set(
    """every each last next this that who which when while before until again ago"""
)
PRONOUNS: Final = word_set("""i he she they it we you""")
DEGREES: Final = word_set(
    """more less most least best very so too even much really again deeply strongly well badly now only mainly mostly
    especially always because having"""
)
OWNED_VERBS: Final = word_set(
    """likes loves hates wants needs plays works lives studies attends starts started died retired moved weighs hopes
    lost won bought sold called broke came became stands smokes plans works opens closes arrives lasts doesn't
    don't wants expires"""
)
GENERIC_NOUNS: Final = word_set(
    """person people adult adults subject science sport sports trade company manufacturer competition field area region
    kind type sort place thing things something group organisation organization language languages
    country industry sector profession form way"""
)
FINITE_VERBS: Final = frozenset(PAST) | word_set("""was were had did got went took came became""")
UNFINISHED: Final = word_set(
    """a an the of in on at to for from by with as and or but because since than their his her its my no not after
    before while when if that which who about into over under"""
)
