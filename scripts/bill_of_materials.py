"""usage: bill_of_materials.py FOLDER: writes FOLDER/sluice-VERSION.spdx.json, an SPDX 2.3 document of the artefacts in FOLDER.

It names each artefact with its checksum, and each library that is compiled or linked into them with the version that this machine has.
release.sh calls it. SOURCE_DATE_EPOCH is the time of the document."""

import datetime
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Debian package that provides the library's headers or archive, name, license. THIRD_PARTY.md describes their use.
LIBRARIES = (
    ("libcli11-dev", "CLI11", "BSD-3-Clause"), ("libexpected-dev", "tl::expected", "CC0-1.0"), ("libboost-dev", "Boost", "BSL-1.0"),
    ("nlohmann-json3-dev", "nlohmann-json", "MIT"), ("libtomlplusplus-dev", "toml++", "MIT"), ("prometheus-cpp-dev", "prometheus-cpp", "MIT"),
    ("libspdlog-dev", "spdlog", "MIT"), ("libfmt-dev", "fmt", "MIT"), ("libhwy-dev", "Highway", "Apache-2.0"), ("libc-ares-dev", "c-ares", "MIT"),
    ("zlib1g-dev", "zlib", "Zlib"), ("libsqlite3-dev", "SQLite", "blessing"), ("libssl-dev", "OpenSSL", "Apache-2.0"),
    ("libstdc++6", "libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1"))

# A library that Debian 13's static OpenSSL contains.
ZSTD = ("libzstd-dev", "Zstandard", "BSD-3-Clause")


def libraries():
    of_openssl = subprocess.run(["pkg-config", "--static", "--libs", "libcrypto"], capture_output=True, text=True, check=True).stdout.split()
    return LIBRARIES + ((ZSTD,) if "-lzstd" in of_openssl else ())


def source_of(package):
    """Returns the source package and its version."""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package], capture_output=True, text=True, check=True)
    return done.stdout.split()


def package(identity, name, version, license_expression, **more):
    return {"SPDXID": f"SPDXRef-{identity}", "name": name, "versionInfo": version, "licenseConcluded": license_expression, "licenseDeclared": license_expression,
            "copyrightText": "NOASSERTION", "downloadLocation": "NOASSERTION", "filesAnalyzed": False, **more}


def document(folder):
    version = (ROOT / "VERSION").read_text(encoding="ascii").strip()
    publisher = dict(re.findall(r'^(PROJECT_\w+)="(.*)"$', (ROOT / "deploy" / "project.env").read_text(encoding="utf-8"), re.MULTILINE))
    name, address = re.fullmatch(r"(.*) <(.*)>", publisher["PROJECT_MAINTAINER"]).groups()
    packages, relations, checksums = [], [], []
    for path in sorted(path for path in folder.iterdir() if re.fullmatch(r"(sluice|libsluice|libnccl-net-sluice).*\.(deb|tar\.gz|whl)", path.name)):
        identity = "Artefact-" + re.sub(r"[^A-Za-z0-9.]+", "-", path.name)
        checksums.append(hashlib.sha256(path.read_bytes()).hexdigest())
        packages.append(package(identity, path.name, version, "Apache-2.0 AND CC-BY-4.0", packageFileName=path.name, supplier=f"Organization: {name} ({address})",
                                homepage=publisher["PROJECT_URL"], checksums=[{"algorithm": "SHA256", "checksumValue": checksums[-1]}]))
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", f"SPDXRef-{identity}"))
    artefacts = [entry["SPDXID"] for entry in packages]
    for binary, title, license_expression in libraries():
        source, source_version = source_of(binary)
        identity = "Library-" + re.sub(r"[^A-Za-z0-9.]+", "-", title).strip("-")
        locator = f"pkg:deb/{platform.freedesktop_os_release()['ID']}/{source}@{source_version.replace('+', '%2B').replace(':', '%3A')}"
        packages.append(package(identity, title, source_version, license_expression,
                                externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}]))
        relations += [(artefact, "STATIC_LINK", f"SPDXRef-{identity}") for artefact in artefacts if linked(artefact, title)]
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"spdxVersion": "SPDX-2.3", "SPDXID": "SPDXRef-DOCUMENT", "dataLicense": "CC0-1.0", "name": f"sluice-{version}",
            "documentNamespace": f"{publisher['PROJECT_URL']}/spdx/sluice-{version}-{hashlib.sha256(''.join(checksums).encode()).hexdigest()}",
            "creationInfo": {"created": created, "creators": [f"Organization: {name} ({address})", "Tool: release.sh"]}, "packages": packages,
            "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations]}


def linked(artefact, library):
    """Only the wheel contains OpenSSL; header packages contain nothing of a library."""
    return ("libsluice-dev" not in artefact) and (library not in ("OpenSSL", "Zstandard") or artefact.endswith(".whl"))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    version = (ROOT / "VERSION").read_text(encoding="ascii").strip()
    (folder / f"sluice-{version}.spdx.json").write_text(json.dumps(document(folder), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
