"""The effective configuration: order of files and flags, merge rules, errors with their place."""

from pathlib import Path
from typing import Any

import pytest

from nodeagent.config import options
from nodeagent.config.load import ConfigError, FlagValue, load_config
from orch.component.secret import Secret

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"


def write(path: Path, body: str, *, head: str = HEAD) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + body)
    return str(path)


def test_without_files_or_flags_every_field_has_its_default() -> None:
    config = load_config(None, None)
    assert config.port == 10250
    assert config.nodeStatusReportFrequency == 300.0
    assert config.evictionHard["memory.available"] == "100Mi"
    assert config.failCgroupV1 is False


def test_drop_ins_apply_in_lexical_order_and_flags_come_last(tmp_path: Path) -> None:
    main = write(tmp_path / "main.yaml", "port: 9090\nhealthzPort: 1111\nmaxPods: 5\n")
    write(tmp_path / "d" / "10.conf", "port: 9091\nhealthzPort: 2222\n")
    write(tmp_path / "d" / "20.conf", "port: 8080\n")
    write(tmp_path / "d" / "15-sub" / "x.conf", "port: 7070\nmaxPods: 6\n")
    write(tmp_path / "d" / "30.conf.bak", "port: 1\n")
    write(tmp_path / "d" / "40.yaml", "port: 2\n")
    config = load_config(main, str(tmp_path / "d"))
    assert (config.port, config.healthzPort, config.maxPods) == (8080, 2222, 6)
    flags = [FlagValue("--port", ("port",), 8081)]
    assert load_config(main, str(tmp_path / "d"), flags).port == 8081


# spec.md, "Node agent configuration merging"
MERGES: list[tuple[str, str, str, Any]] = [
    ("maxPods: 10", "maxPods: 20", "maxPods", 20),
    (
        "systemReserved: {memory: 100Mi}",
        "systemReserved: {cpu: 200m}",
        "systemReserved",
        {"memory": "100Mi", "cpu": "200m"},
    ),
    (
        "featureGates: {A: false, B: true}",
        "featureGates: {B: false, C: true}",
        "featureGates",
        {"A": False, "B": False, "C": True},
    ),
    (
        "registerWithTaints: [{key: a, effect: NoSchedule}, {key: b, effect: NoSchedule}]",
        "registerWithTaints: [{key: c, effect: NoExecute}]",
        "registerWithTaints",
        [{"key": "c", "value": "", "effect": "NoExecute"}],
    ),
    (
        "authorization: {webhook: {cacheAuthorizedTTL: 8m, cacheUnauthorizedTTL: 45s}}",
        "authorization: {webhook: {cacheAuthorizedTTL: 0s}}",
        "authorization",
        {
            "mode": "Webhook",
            "webhook": {"cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "45s"},
        },
    ),
    ("systemReserved: {memory: 1Gi}", "systemReserved: null", "systemReserved", {}),
]


@pytest.mark.parametrize(("main", "drop_in", "field", "expected"), MERGES)
def test_drop_ins_merge_by_the_rules(
    tmp_path: Path, main: str, drop_in: str, field: str, expected: Any
) -> None:
    path = write(tmp_path / "main.yaml", main)
    write(tmp_path / "d" / "10.conf", drop_in)
    dumped = load_config(path, str(tmp_path / "d")).model_dump()
    assert dumped[field] == expected


def test_a_list_under_a_key_is_replaced_and_other_keys_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "main.yaml", "staticPodURLHeader: {support: [a, b], custom: [c, d]}")
    write(tmp_path / "d" / "10.conf", "staticPodURLHeader: {custom: [c]}")
    headers = load_config(path, str(tmp_path / "d")).staticPodURLHeader
    assert headers == {"support": [Secret("a"), Secret("b")], "custom": [Secret("c")]}


def test_an_explicit_zero_is_preserved(tmp_path: Path) -> None:
    path = write(tmp_path / "main.yaml", "evictionPressureTransitionPeriod: 0s\nhealthzPort: 0\n")
    config = load_config(path, None)
    assert config.evictionPressureTransitionPeriod == 0.0
    assert config.healthzPort == 0


def test_a_relative_path_in_the_main_file_is_relative_to_it(tmp_path: Path) -> None:
    path = write(tmp_path / "main.yaml", "staticPodPath: pods\n")
    assert load_config(path, None).staticPodPath == str(tmp_path / "pods")


ERRORS = [
    ("nodeStatusUpdateFrequency: fast\n", "main.yaml:3: nodeStatusUpdateFrequency: "),
    ("nodeStatusUpdateFrequency: 10\n", "write it with a unit"),
    ("port: '10250'\n", "main.yaml:3: port: "),
    ("prot: 1\n", "main.yaml:3: prot: there is no such field (did you mean port?)"),
    ("logging: {levle: info}\n", "logging.levle: there is no such field (did you mean level?)"),
    ("logging:\n  format: xml\n", "main.yaml:4: logging.format: "),
    ("registerWithTaints:\n- {key: a, effect: Never}\n", "registerWithTaints[0].effect: "),
    ("evictionHard: {memory.available: 120%}\n", "evictionHard.memory.available: "),
    ("evictionHard: {memory.available: -1%}\n", "'-1%' must be between 0% and 100%"),
    ("evictionHard: {memory.available: x%}\n", "'x%' is not a percentage"),
    ("evictionHard: {memory.available: ten}\n", "evictionHard.memory.available: "),
    ("evictionHard: {disk.free: 1Gi}\n", "main.yaml:3: evictionHard.disk.free: "),
    ("evictionHard: {checkpoints.room: 1Gi}\n", "main.yaml:3: evictionHard.checkpoints.room: "),
    ("evictionSoft: {memory.available: 1Gi}\n", "needs an evictionSoftGracePeriod"),
    ("systemReserved: {gpu: 1}\n", "main.yaml:3: systemReserved.gpu: "),
    ("systemReserved: {pods: '1'}\n", "main.yaml:3: systemReserved.pods: "),
    ("systemReserved: {cpu: '-1'}\n", "systemReserved.cpu: '-1' must not be negative"),
    ("systemReserved: {cpu: x}\n", "systemReserved.cpu: "),
    (
        "serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}\n",
        "serverTLSBootstrap needs the gate RotateKubeletServerCertificate",
    ),
    ("tlsCertFile: /x\n", "tlsCertFile and tlsPrivateKeyFile must be given together"),
    ("port: 1\nport: 2\n", "main.yaml:4: port: the key is given twice"),
]


@pytest.mark.parametrize(("body", "message"), ERRORS)
def test_an_error_names_file_line_and_field(tmp_path: Path, body: str, message: str) -> None:
    path = write(tmp_path / "main.yaml", body)
    with pytest.raises(ConfigError) as caught:
        load_config(path, None)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


HEADS = [
    ("", "needs apiVersion and kind"),
    ("# only a comment\n", "needs apiVersion and kind"),
    ("kind: NodeAgentConfiguration\n", "apiVersion: missing"),
    ("apiVersion: v1\nkind: NodeAgentConfiguration\n", "apiVersion: 'v1' is unknown"),
    ("apiVersion: nodeagent.config.orch.io/v1beta1\nkind: Pod\n", "kind: 'Pod' is unknown"),
    ("- a\n", "expected fields and values"),
]


@pytest.mark.parametrize(("text", "message"), HEADS)
@pytest.mark.parametrize("place", ["main.yaml", "d/10.conf"])
def test_every_file_must_say_what_it_is(
    tmp_path: Path, text: str, message: str, place: str
) -> None:
    (tmp_path / "d").mkdir()
    main = write(tmp_path / "main.yaml", "")
    (tmp_path / place).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(main, str(tmp_path / "d"))
    assert message in str(caught.value)
    assert place in str(caught.value)


def test_an_error_in_a_drop_in_names_the_drop_in(tmp_path: Path) -> None:
    main = write(tmp_path / "main.yaml", "port: 1\n")
    write(tmp_path / "d" / "10.conf", "port: 99999\n")
    with pytest.raises(ConfigError, match=r"10\.conf:3: port: "):
        load_config(main, str(tmp_path / "d"))


def test_an_error_in_a_flag_names_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--port: "):
        load_config(None, None, [FlagValue("--port", ("port",), 99999)])


def test_a_missing_file_and_a_missing_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: No such file"):
        load_config(str(tmp_path / "absent.yaml"), None)
    with pytest.raises(ConfigError, match=r"absent\.d: No such file"):
        load_config(None, str(tmp_path / "absent.d"))


def test_all_errors_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "main.yaml", "port: 99999\nmaxPods: 0\nodd: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, None)
    assert len(str(caught.value).splitlines()) == 3


ROW_6_FILES = [
    """
port: 10255
readOnlyPort: 10257
systemReserved: {memory: 1Gi}
authorization: {webhook: {cacheAuthorizedTTL: 5m, cacheUnauthorizedTTL: 30s}}
staticPodURLHeader: {A: [a], B: [b]}
shutdownGracePeriodByPodPriority:
- {priority: 1, shutdownGracePeriodSeconds: 60}
- {priority: 2, shutdownGracePeriodSeconds: 45}
- {priority: 3, shutdownGracePeriodSeconds: 30}
featureGates: {D: true, P: true}
""",
    """
port: 8080
systemReserved: {memory: 2Gi}
authorization: {webhook: {cacheAuthorizedTTL: 6m, cacheUnauthorizedTTL: 40s}}
staticPodURLHeader: {A: [a2], B: [b2]}
shutdownGracePeriodByPodPriority:
- {priority: 1, shutdownGracePeriodSeconds: 19}
- {priority: 2, shutdownGracePeriodSeconds: 41}
- {priority: 6, shutdownGracePeriodSeconds: 30}
featureGates: {P: false, R: true}
""",
]
SUITES = ("A_128", "A_256", "CHACHA")  # a list of texts, as clusterDNS is there
# reference/nodeagent.md §11.4 with the fields there are here: main file, drop-ins, flags → what
# `config view` shows. All rows as plain documents: test_merge.py.
ROWS: dict[str, tuple[str, list[str], list[str], dict[str, Any]]] = {
    "1": (
        "port: 9090\nreadOnlyPort: 10257",
        ["port: 9090", "port: 8080\nreadOnlyPort: 10255"],
        [],
        {"port": 8080, "readOnlyPort": 10255},
    ),
    "2": (
        "readOnlyPort: 10256\nnodeagentReserved: {memory: 100Mi}\nhttpCheckFrequency: 5m",
        [
            "readOnlyPort: 10255\nnodeagentReserved: {memory: 150Mi, cpu: 200m}",
            "readOnlyPort: 10257\nnodeagentReserved: {memory: 100Mi}",
        ],
        [],
        {
            "readOnlyPort": 10257,
            "nodeagentReserved": {"cpu": "200m", "memory": "100Mi"},
            "httpCheckFrequency": "5m0s",
        },
    ),
    "3": (
        f"port: 9090\ntlsCipherSuites: [{SUITES[0]}, {SUITES[1]}]",
        [
            "port: 9090\nsystemReserved: {memory: 1Gi}",
            "port: 8080\nreadOnlyPort: 10255\nsystemReserved: {memory: 2Gi}\n"
            f"tlsCipherSuites: [{', '.join(reversed(SUITES))}]",
        ],
        [],
        {
            "port": 8080,
            "readOnlyPort": 10255,
            "systemReserved": {"memory": "2Gi"},
            "tlsCipherSuites": list(reversed(SUITES)),
        },
    ),
    "4": (
        "",
        ["port: 9090", "port: 8080\nreadOnlyPort: 10255"],
        ["--port=8081", "--read-only-port=10256"],
        {"port": 8081, "readOnlyPort": 10256},
    ),
    "5": (
        f"port: 9090\ntlsCipherSuites: [{SUITES[0]}, {SUITES[1]}]",
        [],
        ["--port=9090", f"--tls-cipher-suites={SUITES[2]}"],
        {"port": 9090, "tlsCipherSuites": [SUITES[2]]},
    ),
    "6": (
        "",
        ROW_6_FILES,
        [],
        {
            "port": 8080,
            "readOnlyPort": 10257,
            "systemReserved": {"memory": "2Gi"},
            "authorization": {
                "mode": "Webhook",
                "webhook": {"cacheAuthorizedTTL": "6m0s", "cacheUnauthorizedTTL": "40s"},
            },
            "staticPodURLHeader": {"A": ["CLASSIFIED"], "B": ["CLASSIFIED"]},
            "shutdownGracePeriodByPodPriority": [
                {"priority": priority, "shutdownGracePeriodSeconds": seconds}
                for priority, seconds in ((1, 19), (2, 41), (6, 30))
            ],
            "featureGates": {"D": True, "P": False, "R": True},
        },
    ),
    "7": (
        "port: 20250\naddress: 192.0.2.1\nregisterNode: false\n"
        "authorization: {webhook: {cacheAuthorizedTTL: 5m, cacheUnauthorizedTTL: 30s}}",
        [
            "address: 192.0.2.8\nauthorization: {mode: AlwaysAllow,"
            " webhook: {cacheAuthorizedTTL: 8m, cacheUnauthorizedTTL: 45s}}"
        ],
        [],
        {
            "port": 20250,
            "address": "192.0.2.8",
            "registerNode": False,
            "authorization": {
                "mode": "AlwaysAllow",
                "webhook": {"cacheAuthorizedTTL": "8m0s", "cacheUnauthorizedTTL": "45s"},
            },
        },
    ),
    "9, and a gate by flag": (
        "featureGates: {AllAlpha: false, MemoryQoS: true}",
        ["featureGates: {MemoryQoS: false, Tracing: true, DRA: true}"],
        ["--feature-gates=DRA=false,Other=true"],
        {
            "featureGates": {
                "AllAlpha": False, "MemoryQoS": False, "Tracing": True, "DRA": False, "Other": True,
            },
        },
    ),
    "10": (
        "authentication: {anonymous: {enabled: false}, x509: {clientCAFile: /X}}\n"
        f"tlsCipherSuites: [{SUITES[0]}, {SUITES[1]}]",
        [
            "authentication: {x509: {clientCAFile: /Y}}",
            f"tlsCipherSuites: [{SUITES[2]}]",
        ],
        [],
        {
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True, "cacheTTL": "2m0s"},
                "x509": {"clientCAFile": "/Y"},
            },
            "tlsCipherSuites": [SUITES[2]],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_the_reference_cases_come_out_as_there(tmp_path: Path, row: str) -> None:
    main, drop_ins, flags, expected = ROWS[row]
    path = write(tmp_path / "main.yaml", main)
    write(tmp_path / "d" / "05.conf", "")
    for number, body in enumerate(drop_ins, start=1):
        write(tmp_path / "d" / f"{number}0.conf", body)
    given = options.parse(flags).overrides
    shown = load_config(path, str(tmp_path / "d"), given).model_dump(mode="json")
    assert {field: shown[field] for field in expected} == expected
    defaults = load_config(None, None).model_dump(mode="json")
    rest = shown.keys() - expected.keys()
    assert {field: shown[field] for field in rest} == {field: defaults[field] for field in rest}


# main file, drop-in → evictionHard["nodefs.available"], evictionHard["pid.available"]
THRESHOLDS = [
    ("", "evictionHard: {pid.available: 5%}", "10%", "5%"),
    ("evictionHard: {pid.available: 5%}", "", None, "5%"),
    ("evictionHard: {pid.available: 5%}", "mergeDefaultEvictionSettings: true", "10%", "5%"),
    ("evictionHard: {nodefs.available: 1%}", "mergeDefaultEvictionSettings: true", "1%", None),
    ("evictionHard: {}", "", None, None),
    ("evictionHard: null", "", "10%", None),
    ("evictionHard: {pid.available: 5%}", "evictionHard: null", "10%", None),
]


@pytest.mark.parametrize(("main", "drop_in", "nodefs", "pid"), THRESHOLDS)
def test_thresholds_that_are_not_set_are_off_unless_defaults_are_merged(
    tmp_path: Path, main: str, drop_in: str, nodefs: str | None, pid: str | None
) -> None:
    path = write(tmp_path / "main.yaml", main)
    write(tmp_path / "d" / "10.conf", drop_in)
    hard = load_config(path, str(tmp_path / "d")).evictionHard
    assert (hard.get("nodefs.available"), hard.get("pid.available")) == (nodefs, pid)


def test_a_rule_about_two_fields_names_the_file_that_set_the_first(tmp_path: Path) -> None:
    main = write(tmp_path / "main.yaml", "maxPods: 1\n")
    write(tmp_path / "d" / "10.conf", "tlsCertFile: /x\n")
    with pytest.raises(ConfigError, match=r"10\.conf:3: tlsCertFile and tlsPrivateKeyFile must"):
        load_config(main, str(tmp_path / "d"))
