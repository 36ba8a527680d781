/* Connections spread over nodes without a look at their requests, by a table that leat makes: at a front, each packet goes to the owner of its bucket,
 * unless nodes have said that its connection lives elsewhere by now;
 * at a node, what belongs to no connection goes on to the bucket's previous owner, whom the front names in the packet's urgent pointer (which has no meaning
 * without its flag). Who has been sent a packet so is named nobody any more, so none goes round. docs/decisions/0017-spread.md has the reasons. */
#include <stddef.h>

#include "packet.h"
#include "reach.h"
#include "syncookie.h"

/* As many as the table in leat-logic has. */
#define BUCKETS 65537

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct service_key);
	__type(value, struct spread_service);
} spread_services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct owners);
} buckets SEC(".maps");

/* What fronts of one cluster, and nobody else, make buckets with: else a client could choose its node. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket_key);
} bucket_keys SEC(".maps");

/* Connections that have left their buckets' owners, as the nodes say that have them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct flow_key);
	__type(value, struct moved);
} moved SEC(".maps");

COUNTERS(spread_counters, SPREAD_COUNTERS)

static __always_inline const struct spread_service *find_service(const struct packet *packet)
{
	struct service_key key = {};
	if (packet->kind == PACKET_OTHER)
		return NULL;
	__builtin_memcpy(key.address, packet->destination, 16);
	key.port = packet->destination_port;
	return bpf_map_lookup_elem(&spread_services, &key);
}

/* Mixes one more word in, so that each of its bits changes about half of the others (the finalizer of MurmurHash3, by Appleby). */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash ^= word;
	hash ^= hash >> 33;
	hash *= 0xff51afd7ed558ccdULL;
	hash ^= hash >> 33;
	hash *= 0xc4ceb9fe1a85ec53ULL;
	return hash ^ hash >> 33;
}

static __always_inline __u32 bucket_of(const struct packet *packet, const struct bucket_key *key)
{
	__u64 words[4];
	__builtin_memcpy(words, packet->source, 16);
	__builtin_memcpy(words + 2, packet->destination, 16);
	__u64 hash = mix(key->first, words[0]);
	hash = mix(hash + key->second, words[1]);
	hash = mix(hash, words[2]);
	hash = mix(hash, words[3]);
	hash = mix(hash + key->second, (__u64)packet->source_port << 16 | packet->destination_port);
	return (hash >> 32) * BUCKETS >> 32;
}

static __always_inline int send_to(const struct packet *packet, __u32 number)
{
	const struct node *node = bpf_map_lookup_elem(&nodes, &number);
	if (!node || node->reach != NODE_NEIGHBOUR) {
		count(UNREACHED);
		return TC_ACT_SHOT;
	}
	return send_to_neighbour(packet, node);
}

/* Has the packet name a bucket's previous owner, or nobody. A client's own word is never passed on. */
static __always_inline int name(struct __sk_buff *skb, const struct packet *packet, __u32 number)
{
	if (packet->kind != PACKET_TCP || packet->tcp.urg || packet->tcp.urg_ptr == bpf_htons(number))
		return 1;
	return set_urgent_pointer(skb, packet, bpf_htons(number));
}

/* The node that has taken a connection over from its bucket's owner; 0 for one that nobody has. */
static __noinline __u32 holder_of(const struct packet *packet)
{
	struct flow_key key;
	if (!packet)
		return 0;
	set_key(&key, packet);
	const struct moved *to = bpf_map_lookup_elem(&moved, &key);
	if (!to)
		return 0;
	if (to->is_over && packet->kind == PACKET_TCP && packet->tcp.syn) {
		bpf_map_delete_elem(&moved, &key);
		return 0;
	}
	return to->number;
}

SEC("classifier")
int front_ingress(struct __sk_buff *skb)
{
	struct packet packet;
	__u32 zero = 0;
	read_packet(skb, &packet);
	if (!find_service(&packet))
		return TC_ACT_UNSPEC;
	const struct bucket_key *key = bpf_map_lookup_elem(&bucket_keys, &zero);
	if (!key)
		return TC_ACT_SHOT;
	__u32 holder = key->has_moved ? holder_of(&packet) : 0;
	if (holder) {
		if (!name(skb, &packet, 0))
			return TC_ACT_SHOT;
		count(FOLLOWED);
		return send_to(&packet, holder);
	}
	__u32 bucket = bucket_of(&packet, key);
	const struct owners *owners = bpf_map_lookup_elem(&buckets, &bucket);
	if (!owners)
		return TC_ACT_SHOT;
	/* What begins belongs to nobody yet. */
	if (!name(skb, &packet, packet.tcp.syn ? 0 : owners->previous))
		return TC_ACT_SHOT;
	count(SPREAD);
	return send_to(&packet, owners->current);
}

#ifdef WITH_SERVER
#include "served.h"
#else
/* leat listens at the VIP itself: only what may have to be sent on is looked at. */
static __always_inline int concerns_node(const struct packet *packet)
{
	return !packet->tcp.syn && names_previous(packet);
}

static __always_inline int begin(struct __sk_buff *skb, const struct packet *packet, int kind, const struct spread_service *service)
{
	return TC_ACT_UNSPEC;
}

/* Whether a packet without a connection ends a handshake that this host has begun. */
static __always_inline int ends_handshake(struct __sk_buff *skb, const struct packet *packet, int kind, const struct spread_service *service)
{
	return kind == SOCKET_LISTENER && has_syn_cookie(skb, packet);
}

static __always_inline void note_goodbye(const struct packet *packet)
{
}
#endif

/* What is read of the kernel's own sockets; it says itself where in them the fields are. */
struct tcp_request_sock {
	__u32 snt_isn;
} __attribute__((preserve_access_index));

struct sock_common {
	__u32 skc_tw_rcv_nxt;
	__u32 skc_tw_snd_nxt;
} __attribute__((preserve_access_index));

struct inet_timewait_sock {
	struct sock_common __tw_common;
} __attribute__((preserve_access_index));

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
} __attribute__((preserve_access_index));

/* Whether this kernel says what its structures are like (BTF). */
const volatile __u32 has_types = 0;

/* Whether the client goes by another node's answer than the one of a handshake here. That was lost, and said once more when the bucket had this owner, who had answered the
 * client's second SYN. */
static __always_inline int answers_another(struct bpf_sock *socket, const struct packet *packet)
{
	struct tcp_request_sock *handshake = bpf_skc_to_tcp_request_sock(socket);
	return handshake && packet->tcp.ack && bpf_ntohl(packet->tcp.ack_seq) != handshake->snt_isn + 1;
}

static __always_inline int is_before_next(struct bpf_sock *socket, const struct packet *packet)
{
	struct tcp_timewait_sock *over = bpf_skc_to_tcp_timewait_sock(socket);
	return over && is_of_next(packet, over->tw_sk.__tw_common.skc_tw_rcv_nxt, over->tw_sk.__tw_common.skc_tw_snd_nxt);
}

/* What this host has of a packet's connection. What has the same ends only isn't it: the kernel would reset the client, or answer for a connection that is over. */
static __noinline int find_socket(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return SOCKET_NONE;
	struct bpf_sock *socket = look_up_socket(skb, packet);
	if (!socket)
		return SOCKET_NONE;
	int kind = kind_of(socket);
	if (has_types && ((socket->state == BPF_TCP_NEW_SYN_RECV && answers_another(socket, packet)) ||
			  (kind == SOCKET_OVER && is_before_next(socket, packet))))
		kind = SOCKET_NONE;
	bpf_sk_release(socket);
	return kind;
}

SEC("classifier")
int peer_ingress(struct __sk_buff *skb)
{
	struct packet packet;
	read_packet(skb, &packet);
	if (packet.kind != PACKET_TCP || !concerns_node(&packet))
		return TC_ACT_UNSPEC;
	const struct spread_service *service = find_service(&packet);
	if (!service)
		return TC_ACT_UNSPEC;
	int kind = find_socket(skb, &packet);
	if (packet.tcp.syn)
		return begin(skb, &packet, kind, service);
	if (kind == SOCKET_CONNECTION || kind == SOCKET_OVER) {
		if (packet.tcp.fin)
			note_goodbye(&packet);
		return TC_ACT_UNSPEC;
	}
	if (ends_handshake(skb, &packet, kind, service))
		return TC_ACT_UNSPEC;
	if (!names_previous(&packet) || service->flags & SPREAD_OWN)
		return TC_ACT_UNSPEC;
	__u32 previous = bpf_ntohs(packet.tcp.urg_ptr);
	if (!set_urgent_pointer(skb, &packet, 0))
		return TC_ACT_SHOT;
	count(PASSED_ON);
	return send_to(&packet, previous);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
