"""The deterministic fuser rule by rule (data/FUSION.md)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from roam.errors import InputError
from roam.fusion import Chain, DeterministicFuser, parse_chain
from roam.fusion.chain import MAX_VALUES, collapse, join_chains, refines
from roam.fusion.counts import stated_count
from roam.fusion.deterministic import MAX_CHARACTERS
from roam.fusion.grammar import past, read, third_person
from roam.fusion.text import numbers, split_segments
from roam.interfaces import Fuser
from roam.records import FusionRequest, TimedText
from roam.relations import Relation

EQV, OSN, NSO, CON = Relation.EQV, Relation.OSN, Relation.NSO, Relation.CON
D1, D2, D3 = "2024-01-10", "2024-03-10", "2024-06-10"


def fuse(relation: Relation, *inputs: tuple[str, str | None], survivor: int | None = None) -> str:
    """One view; the survivor is the first input for EQV and NSO, the last for OSN and CON, unless given."""
    default = len(inputs) - 1 if relation in (OSN, CON) else 0
    request = FusionRequest(
        tuple(TimedText(text, time) for text, time in inputs), relation, default if survivor is None else survivor
    )
    return DeterministicFuser().fuse([request])[0]


def test_it_is_a_fuser_and_keeps_the_order_of_requests() -> None:
    fuser = DeterministicFuser()
    assert isinstance(fuser, Fuser)
    requests = [
        FusionRequest((TimedText(f"User has {n} hens.", D1), TimedText(f"User has {n + 1} hens.", D2)), CON, 1)
        for n in (3, 7)
    ]
    assert fuser.fuse(requests) == [
        "User's number of hens: 3 -> 4 (current, as of 2024-03-10)",
        "User's number of hens: 7 -> 8 (current, as of 2024-03-10)",
    ]
    assert fuser.fuse([]) == []


# --- CON ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "view"),
    [
        ("The user works at Siemens.", "The user now works at Bosch.", "The user's employer: Siemens -> Bosch"),
        ("User weighs 81 kg.", "User weighs 79.5 kg.", "User's weight: 81 kg -> 79.5 kg"),
        ("Lives in Turin.", "Has moved to Bari.", "The user's home city: Turin -> Bari"),
        ("Ada's dentist is Dr. Roy.", "Ada's dentist is Dr. Ling.", "Ada's dentist: Dr. Roy -> Dr. Ling"),
        ("User's flight is on 2 May.", "User's flight is on 4 May, not 2 May.", "User's flight: 2 May -> 4 May"),
        ("User loves jazz.", "User can't stand jazz.", "User's view on jazz: loved it -> can't stand it"),
        (
            "The user jogs every day.",
            "The user no longer jogs.",
            "The user's jogging habit: jogged every day -> no longer jogs",
        ),
        ("The user has a boat in Split.", "The user sold the boat.", "The user's boat: had one in Split -> sold it"),
        (
            "The user can't juggle.",
            "The user can juggle.",
            "The user's ability to juggle: couldn't juggle -> can juggle",
        ),
        ("I drive a Fiat Panda.", "I drive a Volvo V60 now.", "The user's car: Fiat Panda -> Volvo V60"),
        (
            "The user's mail app is Outlook.",
            "The user switched mail apps from Spark to Thunderbird.",
            "The user's mail app: Outlook -> Spark -> Thunderbird",
        ),
    ],
)  # fmt: skip
def test_two_plain_statements_become_a_chain(old: str, new: str, view: str) -> None:
    assert fuse(CON, (old, D1), (new, D2)) == f"{view} (current, as of {D2})"


def test_unreadable_attributes_keep_both_statements_in_full() -> None:
    old, new = "The user grows tomatoes in Lima.", "A hailstorm of 2023 ended the user's tomato growing."
    view = fuse(CON, (old, D1), (new, D2))
    assert view == (
        "The user's status: grew tomatoes in Lima -> a hailstorm of 2023 ended the user's tomato growing "
        "(current, as of 2024-03-10)"
    )


def test_a_reading_that_would_lose_a_number_is_given_up() -> None:
    chain = "The user's herd: 40 goats -> 55 goats (current, as of 2024-01-10)"
    view = fuse(CON, (chain, D1), ("The user sold 12 goats to Omar and keeps 22 goats.", D2))
    assert view.startswith("The user's herd: 40 goats -> 55 goats -> ")
    assert "12" in view
    assert "22" in view
    assert "Omar" in view


def test_a_chain_is_extended_verbatim() -> None:
    chain = "The user's view on yoga: found it dull -> enjoys it (current, as of 2024-01-10); the user has a cat."
    view = fuse(CON, (chain, D1), ("The user hates yoga.", D2))
    assert view == (
        "The user's view on yoga: found it dull -> enjoys it -> hates it (current, as of 2024-03-10); "
        "the user has a cat."
    )


def test_late_arrivals_go_before_the_current_value() -> None:
    chain = "The user's employer: Orange -> Telefonica (current, as of 2024-03-10)"
    view = fuse(CON, ("The user works at Vodafone.", D1), (chain, D2))
    assert view == "The user's employer: Orange -> Vodafone -> Telefonica (current, as of 2024-03-10)"
    dated = fuse(CON, (chain, D2), ("The user worked at Nokia from 2011 to 2014.", D3))
    assert dated == "The user's employer: Orange -> Nokia from 2011 to 2014 -> Telefonica (current, as of 2024-03-10)"


def test_an_undated_current_value_has_a_bare_marker() -> None:
    view = fuse(CON, ("User's bank is ING.", D1), ("User's bank is N26.", None))
    assert view == "User's bank: ING -> N26 (current)"


def test_a_restated_current_value_leaves_chain_and_date_alone() -> None:
    chain = "User's employer: Aldi -> DHL (current, as of 2024-01-10)"
    assert fuse(CON, (chain, D1), ("User works for DHL.", D2)) == chain
    refined = fuse(CON, (chain, D1), ("User works for DHL as a shift lead.", D2))
    assert refined == "User's employer: Aldi -> DHL as a shift lead (current, as of 2024-01-10)"


def test_a_value_that_comes_back_is_written_again() -> None:
    chain = "The user's home country: Ghana -> Canada (current, as of 2024-01-10)"
    view = fuse(CON, (chain, D1), ("The user is living in Ghana again.", D2))
    assert view == "The user's home country: Ghana -> Canada -> Ghana (current, as of 2024-03-10)"


def test_two_chains_of_one_attribute_are_joined() -> None:
    first = "The user's home city: Cali -> Medellin (current, as of 2023-01-10)"
    second = "The user's home city: Medellin -> Cartagena (current, as of 2024-01-10)"
    view = fuse(CON, (first, "2023-01-10"), (second, D1), ("The user lives in Santa Marta.", D2))
    assert view == "The user's home city: Cali -> Medellin -> Cartagena -> Santa Marta (current, as of 2024-03-10)"


def test_of_two_chains_the_touched_one_comes_first() -> None:
    chains = (
        "User's phone: Moto G -> Pixel 6a (current, as of 2023-10-01); "
        "User's hair: long -> bob (current, as of 2023-03-01)"
    )
    view = fuse(CON, (chains, "2023-10-01"), ("User's hair is a buzz cut now.", D1))
    assert view == (
        "User's hair: long -> bob -> buzz cut (current, as of 2024-01-10); "
        "User's phone: Moto G -> Pixel 6a (current, as of 2023-10-01)"
    )


def test_negation_is_never_taken_for_a_contrast() -> None:
    view = fuse(CON, ("User is allergic to peanuts.", D1), ("User was retested and is not allergic to peanuts.", D2))
    assert "is not allergic to peanuts" in view


def test_a_conflict_of_refining_values_still_shows_both() -> None:
    view = fuse(CON, ("User works at DHL.", D1), ("User works at DHL as a driver.", D2))
    assert view == "User's employer: DHL -> DHL as a driver (current, as of 2024-03-10)"


def test_date_times_are_shown_as_days() -> None:
    view = fuse(CON, ("User's bank is ING.", D1), ("User's bank is N26.", "2024-03-10T08:30:00+01:00"))
    assert view.endswith("(current, as of 2024-03-10)")


def test_a_head_that_could_not_be_read_back_is_not_used() -> None:
    view = fuse(CON, ("User loves Thor: Ragnarok.", D1), ("User hates Thor: Ragnarok.", D2))
    chain = parse_chain(view)
    assert chain is not None
    assert chain.head == "User's status"
    assert chain.values == ("loved Thor: Ragnarok", "hates Thor: Ragnarok")


# --- bounds ------------------------------------------------------------------------------------------------------


def test_a_chain_in_a_long_lived_store_is_bounded_and_counts_what_it_leaves_out() -> None:
    view = "The user's weight: 100 kg -> 99 kg (current, as of 2020-01-01)"
    for year in range(2021, 2051):
        view = fuse(CON, (view, f"{year - 1}-01-01"), (f"The user weighs {year - 2000}.5 kg.", f"{year}-01-01"))
    chain = parse_chain(view)
    assert chain is not None
    assert len(chain.values) == MAX_VALUES
    assert chain.earlier == 32 - MAX_VALUES
    assert chain.values[-1] == "50.5 kg"
    assert "[20 earlier values in evidence] -> " in view


def test_side_statements_are_bounded_too() -> None:
    view = "The user swims."
    for number in range(60):
        new = f"The user swims; the user once read book number {number} of a very long series of books."
        view = fuse(EQV, (view, D1), (new, D2))
    assert len(view) < MAX_CHARACTERS + 50
    assert view.startswith("The user swims; ")
    assert "book number 59" in view
    assert "earlier statements in evidence]." in view


# --- EQV ---------------------------------------------------------------------------------------------------------


def test_eqv_states_a_stable_fact_once() -> None:
    assert fuse(EQV, ("The user works at Ericsson.", D1), ("User is employed by Ericsson", D2)) == (
        "The user works at Ericsson."
    )


def test_eqv_copies_the_input_that_holds_every_detail() -> None:
    long = "The user is allergic to penicillin, which gave them hives at age 9."
    assert fuse(EQV, ("The user is allergic to penicillin.", D1), (long, D2)) == long


def test_eqv_inserts_the_details_of_the_others() -> None:
    view = fuse(
        EQV, ("The user plans to visit Oaxaca in 2025.", D1), ("User intends to visit Oaxaca, for ten days.", D2)
    )
    assert view == "The user plans to visit Oaxaca in 2025, for ten days."


def test_eqv_never_drops_a_name_it_cannot_fold() -> None:
    view = fuse(EQV, ("The user plays in a band.", D1), ("Besides Ana, Bo and Li, nobody plays with the user.", D2))
    assert "Ana" in view
    assert "Bo" in view
    assert "Li" in view


@pytest.mark.parametrize(
    ("first", "second", "days", "view"),
    [
        ("User bought oat milk.", "User bought oat milk.", ("2024-01-01", "2024-01-08"), "User bought oat milk twice."),
        ("User gave blood twice.", "User donated blood.", ("2024-01-01", "2024-05-08"), "User gave blood three times."),
        ("User gave blood 7 times.", "User gave blood.", ("2024-01-01", "2024-05-08"), "User gave blood 8 times."),
        ("User gave blood twice.", "User has now given blood 5 times.", (D1, D2), "User gave blood 5 times."),
        ("User visited Lyon.", "User visited Lyon again.", ("2024-01-01", "2024-05-08"), "User visited Lyon twice."),
        # The same or a neighbouring day, an unknown time, a rare or pinned event, a state, a frequency: no count.
        ("User bought oat milk.", "User bought oat milk.", ("2024-01-01", "2024-01-01"), "User bought oat milk."),
        ("User bought oat milk.", "User bought oat milk.", ("2024-01-01", "2024-01-03"), "User bought oat milk."),
        ("User bought oat milk.", "User bought oat milk.", ("2024-01-01", None), "User bought oat milk."),
        ("User had a tooth pulled.", "User had a tooth pulled.", (D1, D2), "User had a tooth pulled."),
        ("User visited Lyon in 2019.", "User visited Lyon in 2019.", (D1, D2), "User visited Lyon in 2019."),
        ("User works at Bosch.", "User works at Bosch.", (D1, D2), "User works at Bosch."),
        ("User swims twice a week.", "User swims twice a week.", (D1, D2), "User swims twice a week."),
        ("User bought a guitar.", "User bought a guitar.", (D1, D2), "User bought a guitar."),
    ],
)
def test_counts(first: str, second: str, days: tuple[str | None, str | None], view: str) -> None:
    assert fuse(EQV, (first, days[0]), (second, days[1])) == view


def test_eqv_keeps_a_chain_and_its_date() -> None:
    chain = "The user's 10K PB: 54:10 -> 51:48 (current, as of 2024-01-10)"
    assert fuse(EQV, (chain, D1), ("The user's personal best over 10K is 51:48.", D2)) == chain


def test_eqv_with_different_values_keeps_both() -> None:
    view = fuse(EQV, ("The user's gym fee is 35 euros a month.", D1), ("The user pays 42 euros a month for it.", D2))
    assert view == "The user's gym fee: previously 35 euros a month; now 42 euros a month."


def test_stated_counts_are_not_frequencies() -> None:
    assert stated_count("User went there three times.") == 3
    assert stated_count("User goes there three times a week.") is None
    assert stated_count("User goes there at least 5 times.") is None


# --- OSN and NSO ---------------------------------------------------------------------------------------------------


def test_osn_keeps_the_specific_statement_and_a_compatible_detail() -> None:
    view = fuse(OSN, ("The user has a dog named Pepper.", D1), ("The user has a three-legged dachshund.", D2))
    assert view == "The user has a three-legged dachshund named Pepper."


@pytest.mark.parametrize(
    ("general", "specific"),
    [
        ("The user lives in Australia.", "The user lives in Hobart, Tasmania."),
        ("User earns between 30,000 and 50,000 pounds a year.", "User earns 41,500 pounds a year."),
        ("The user takes no sugar in tea.", "The user has given up all added sugar."),
        ("User has been doing pottery for over a year.", "User has been doing pottery since March 2019."),
    ],
)
def test_what_the_specific_fact_implies_goes(general: str, specific: str) -> None:
    assert fuse(OSN, (general, D1), (specific, D2)) == specific
    assert fuse(NSO, (specific, D1), (general, D2)) == specific


def test_the_survivor_decides_whatever_the_order() -> None:
    specific = "The user's parents live in Tavira, in the Algarve."
    assert fuse(OSN, (specific, D1), ("The user's parents live in Portugal.", D2), survivor=0) == specific


def test_a_count_of_the_general_event_stays_a_statement_of_its_own() -> None:
    view = fuse(OSN, ("The user has been to a museum 6 times.", D1), ("The user went to the Prado in Madrid.", D2))
    assert view == "The user went to the Prado in Madrid; The user has been to a museum 6 times."


def test_chains_stay_verbatim_under_osn_and_nso() -> None:
    chain = "The user's home state: Texas -> Oregon (current, as of 2024-01-10)"
    plain = "The user lives in Bend, Oregon."
    assert fuse(OSN, (chain, D1), (plain, D2)) == f"{chain}; {plain}"
    assert fuse(NSO, (chain, D1), ("The user lives in the west.", D2)) == chain


# --- all relations -------------------------------------------------------------------------------------------------


def test_unrelated_pieces_follow_verbatim_in_order() -> None:
    view = fuse(OSN, ("I keep fish. I work shifts.", D1), ("The user keeps 14 tetras; the user is 30.", D2))
    assert view == "The user keeps 14 tetras; The user works shifts; the user is 30."


def test_abbreviations_and_titles_do_not_end_a_sentence() -> None:
    assert split_segments('User saw "Go. Stop. Go" with Dr. Roy at 4 p.m. today. User is 30.') == [
        'User saw "Go. Stop. Go" with Dr. Roy at 4 p.m. today',
        "User is 30",
    ]


@pytest.mark.parametrize(
    ("first", "third"),
    [
        ("I don't have a car.", "The user doesn't have a car."),
        ("I've never skied.", "The user has never skied."),
        ("I'm afraid of my boss.", "The user is afraid of their boss."),
        ("My sister calls me daily.", "The user's sister calls them daily."),
        ("I study and teach law.", "The user studies and teaches law."),
        ("Maya calls me daily.", "Maya calls me daily."),
        ('I love "My Way".', 'The user loves "My Way".'),
    ],
)
def test_first_person_becomes_third(first: str, third: str) -> None:
    assert third_person(first) == third


def test_predicates_go_into_the_past() -> None:
    told = ["works in Rome", "doesn't swim", "no longer smokes", "tries hard", "is ill", "radiators hum", "met Ana"]
    assert [past(text) for text in told][:5] == [
        "worked in Rome",
        "didn't swim",
        "no longer smoked",
        "tried hard",
        "was ill",
    ]
    assert past("met Ana") == "met Ana"


def test_statements_are_read_into_owner_thing_and_predicate() -> None:
    statement = read("User's dog eats Purina")
    assert (statement.owner, statement.noun, statement.predicate) == ("User's", "dog", "eats Purina")
    assert read("Maya plays the cello").owner == "Maya's"
    assert read("Elgar is more to the user's liking").owner == "The user's"


def test_chains_are_read_back_as_they_are_written() -> None:
    chain = Chain('Ada\'s view on "Up: Again"', ("liked it", "-1.50", "4:31:02, in Rome"), "2024-01-10", earlier=3)
    assert parse_chain(chain.render()) == chain
    assert parse_chain("The user has a dog: Rex") is None
    assert parse_chain("The user's state: -> (current)") is None


def test_collapse_takes_the_more_specific_wording_and_leaves_numbers_apart() -> None:
    assert collapse(["Lidl", "the Lidl warehouse", "Aldi"]) == ["the Lidl warehouse", "Aldi"]
    assert not refines("two and a half", "two")
    assert not refines("not vegan", "vegan")
    joined = join_chains(Chain("h", ("a", "b", "c")), Chain("h", ("b", "c", "d"), "2024-01-10"))
    assert joined == Chain("h", ("a", "b", "c", "d"), "2024-01-10")


def test_numbers_are_found_in_any_writing() -> None:
    assert numbers("a 12-pound fee, four hens, 1,900 m at 4:12:33 on 2024-05-01") == {
        "12",
        "4",
        "1900",
        "4:12:33",
        "2024-05-01",
    }


def test_bad_requests_are_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match="IND fuses nothing"):
        fuse(Relation.IND, ("User is 30.", D1), ("User is tall.", D2), survivor=0)
    with pytest.raises(InputError, match="at least one non-empty input"):
        fuse(EQV, ("  ", D1), ("\n", D2))
    with pytest.raises(InputError, match="survivor 2: the request has inputs 0 to 1"):
        fuse(EQV, ("User is 30.", D1), ("User is tall.", D2), survivor=2)


def test_an_empty_input_is_left_out() -> None:
    assert fuse(OSN, ("", D1), ("User has a cat.", D2)) == "User has a cat."


def test_importing_the_fuser_loads_no_model_library() -> None:
    code = "import sys, roam.fusion; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
