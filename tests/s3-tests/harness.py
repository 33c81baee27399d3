"""What `run` needs beside pytest: the suite's configuration, and the comparison of a run with expected.txt."""

import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def conf():
    """Prints the suite's configuration. The main user stands in for the others where they are not given."""
    endpoint = urllib.parse.urlsplit(os.environ["CLAYSTONE_ENDPOINT"])
    identity = os.environ.get("CLAYSTONE_MAIN_ID", "owner")
    main = {
        "access_key": os.environ["CLAYSTONE_ACCESS_KEY"],
        "secret_key": os.environ["CLAYSTONE_SECRET_KEY"],
        "user_id": identity,
        "display_name": identity,
    }
    names = {"access_key": "ACCESS_KEY", "secret_key": "SECRET_KEY", "user_id": "ID", "display_name": "ID"}

    def user(which):
        return {field: os.environ.get(f"CLAYSTONE_{which}_{name}", main[field]) for field, name in names.items()}

    def mail(which):
        return {"email": f"{which}@claystone.invalid"}

    unused = {field: "unused" for field in names}
    sections = {
        "DEFAULT": {
            "host": endpoint.hostname,
            "port": endpoint.port,
            "is_secure": endpoint.scheme == "https",
            "ssl_verify": False,
        },
        "fixtures": {"bucket prefix": "claystone-{random}-"},
        "s3 main": main | mail("main") | {"api_name": "eu-central-1"},
        "s3 alt": user("ALT") | mail("alt"),
        "s3 tenant": user("TENANT") | mail("tenant") | {"tenant": "tenant"},
        "iam": unused | mail("iam"),
        "iam root": unused | mail("root"),
        "iam alt root": unused | mail("altroot"),
    }
    for name, fields in sections.items():
        print(f"[{name}]")
        for field, value in fields.items():
            print(f"{field} = {value}")


def outcomes(reports):
    """Names of the tests that passed, failed and were skipped; a test whose clean-up failed did not pass."""
    found = {"passed": set(), "failed": set(), "skipped": set()}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            tags = {child.tag for child in case}
            outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
            found[outcome].add(f"{case.get('classname').rsplit('.', 1)[-1]}::{case.get('name')}")
    found["passed"] -= found["failed"]
    return found


def compare(expected_path, reports, update):
    found = outcomes(reports)
    passed = found["passed"]
    if update:
        with open(expected_path, "w") as file:
            file.writelines(f"{name}\n" for name in sorted(passed))
    with open(expected_path) as file:
        expected = set(file.read().split())
    for name in sorted(expected - passed):
        print(f"LOST   {name}")
    for name in sorted(passed - expected):
        print(f"GAINED {name}")
    print(f"s3-tests: {len(passed)} passed, {len(found['failed'])} failed, {len(found['skipped'])} skipped;"
          f" of {len(expected)} expected passes {len(expected - passed)} lost, {len(passed - expected)} gained")
    return 1 if expected - passed else 0


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "conf":
        conf()
    else:
        sys.exit(compare(words[0], [word for word in words[1:] if word != "--update"], "--update" in words))
