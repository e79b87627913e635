#!/usr/bin/env python3
"""Writes an SPDX 2.3 document of what Linnet's packages are made of.

    tools/packages/spdx.py VERSION SECONDS < LINES

Each line: the Debian package of a library, its version, and `linked` or `compiled` (headers, or a static library). SECONDS
since 1970 is the document's time.
"""
import datetime
import json
import re
import sys

version, seconds = sys.argv[1], int(sys.argv[2])
RELATIONS = {"linked": "DYNAMIC_LINK", "compiled": "STATIC_LINK"}


def package(name, version, **more):
    return {"SPDXID": "SPDXRef-" + re.sub("[^a-zA-Z0-9.-]", "-", name), "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "copyrightText": "NOASSERTION",
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION"} | more


linnet = package("linnet", version, licenseConcluded="Apache-2.0", licenseDeclared="Apache-2.0",
                 copyrightText="The Linnet authors")
packages = [linnet]
relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": linnet["SPDXID"]}]
for line in sys.stdin:
    name, its_version, how = line.split()
    part = package(name, its_version, externalRefs=[{
        "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": f"pkg:deb/debian/{name}@{its_version}"}])
    packages.append(part)
    relations.append({"spdxElementId": linnet["SPDXID"], "relationshipType": RELATIONS[how],
                      "relatedSpdxElement": part["SPDXID"]})
json.dump({
    "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"linnet-{version}",
    "documentNamespace": f"urn:linnet:spdx:{version}",
    "creationInfo": {"creators": ["Tool: tools/packages/spdx.py of Linnet"],
                     "created": datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")},
    "packages": packages, "relationships": relations}, sys.stdout, indent=1)
print()
