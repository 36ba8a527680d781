/* Answers SYNs in the place of a listener, without a socket, and says which packets come from clients that have got such an answer. */
#pragma once
#ifdef WITH_REPLAYS
#include "replay.h"
#else
#include "born.h"
#endif
#include "turn.h"

/* The VIPs whose SYNs are answered; those with 0 aren't any more, but who got an answer is believed. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct service_key);
	__type(value, __u32);
} born_vips SEC(".maps");

/* As long as a server waits for a request; then the connection isn't known any more. */
#define COOKIE_LIFETIME_MS 64000
/* What a client may send before it has heard more: as Linux says it. */
#define FIRST_WINDOW 64240
#define TCP_HEADER_MAX 60
#define SYN_ACK_BYTES 40

/* A SYN's header and that of its answer: too much for the stack. */
struct headers {
	__u8 old[64];
	__u8 new[64];
	struct syn_options options;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headers);
} answers SEC(".maps");

static __noinline const __u32 *find_born_vip(const struct packet *packet)
{
	struct service_key key = {};
	if (!packet)
		return NULL;
	__builtin_memcpy(key.address, packet->destination, 16);
	key.port = packet->destination_port;
	return bpf_map_lookup_elem(&born_vips, &key);
}

static __noinline int has_listener(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return 0;
	struct bpf_sock *socket = find_own_listener(skb, packet);
	if (!socket)
		return 0;
	int is_listening = socket->state == BPF_TCP_LISTEN;
	bpf_sk_release(socket);
	return is_listening;
}

static __noinline int turn_ip(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return 0;
	if (packet->is_ipv4) {
		struct iphdr ip = {
			.version = 4,
			.ihl = 5,
			.tot_len = bpf_htons(sizeof(ip) + SYN_ACK_BYTES),
			.frag_off = bpf_htons(0x4000),
			.ttl = 64,
			.protocol = IPPROTO_TCP,
			.saddr = mapped_ipv4(packet->destination),
			.daddr = mapped_ipv4(packet->source),
		};
		__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&ip, sizeof(ip), 0);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		ip.check = ~sum;
		return bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0) == 0;
	}
	struct ipv6hdr ip = {
		.version = 6,
		.payload_len = bpf_htons(SYN_ACK_BYTES),
		.nexthdr = IPPROTO_TCP,
		.hop_limit = 64,
	};
	__builtin_memcpy(&ip.saddr, packet->destination, 16);
	__builtin_memcpy(&ip.daddr, packet->source, 16);
	return bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0) == 0;
}

static __always_inline void write_options(__u8 *at, const struct syn_options *options, __u16 mss, __u32 timestamp)
{
	__be32 number;
	at[0] = 2;
	at[1] = 4;
	at[2] = mss >> 8;
	at[3] = mss;
	at[4] = options->sack ? 4 : 1;
	at[5] = options->sack ? 2 : 1;
	at[6] = 8;
	at[7] = 10;
	number = bpf_htonl(timestamp);
	__builtin_memcpy(at + 8, &number, 4);
	number = bpf_htonl(options->timestamp);
	__builtin_memcpy(at + 12, &number, 4);
	at[16] = 1;
	at[17] = options->window_scale <= WINDOW_SCALE_MAX ? 3 : 1;
	at[18] = options->window_scale <= WINDOW_SCALE_MAX ? 3 : 1;
	at[19] = options->window_scale <= WINDOW_SCALE_MAX ? OWN_WINDOW_SCALE : 1;
}

/* Makes the answer of a SYN out of it, and sends it back the way it came. Returns 0 when the SYN is for the listener: nothing has been changed. */
static __noinline int answer_syn(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 zero = 0;
	struct headers *headers = bpf_map_lookup_elem(&answers, &zero);
	const struct cookie_key *key = find_cookie_key();
	if (!packet || !key || !headers || packet->payload || packet->tcp.fin || packet->tcp.rst || packet->tcp.ack)
		return 0;
	/* IP options before it: rare enough. */
	if (packet->l4 != ETH_HLEN + (packet->is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
		return 0;
	__u64 old_bytes = packet->tcp.doff * 4;
	__u32 l4 = packet->l4 & 63, mtu = 0;
	struct syn_options *options = &headers->options;
	if (!read_options(skb, packet, options) || !options->has_timestamp || !has_listener(skb, packet))
		return 0;
	if (bpf_check_mtu(skb, 0, &mtu, 0, 0) < 0 && !mtu)
		return 0;
	__builtin_memset(headers->old, 0, sizeof(headers->old));
	__builtin_memset(headers->new, 0, sizeof(headers->new));
	if (old_bytes < sizeof(struct tcphdr) || old_bytes > TCP_HEADER_MAX ||
	    bpf_skb_load_bytes(skb, l4, headers->old, WITHIN(old_bytes, sizeof(headers->old))) < 0)
		return 0;
	__u32 client_isn = bpf_ntohl(packet->tcp.seq);
	__u32 timestamp = (now_ms() & ~OPTIONS_MASK) | pack_options(options, packet->is_ipv4);
	struct tcphdr *tcp = (struct tcphdr *)headers->new;
	tcp->source = packet->destination_port;
	tcp->dest = packet->source_port;
	tcp->seq = bpf_htonl(cookie_hash(packet, client_isn, timestamp, key));
	tcp->ack_seq = bpf_htonl(client_isn + 1);
	tcp->doff = SYN_ACK_BYTES / 4;
	tcp->syn = tcp->ack = 1;
	tcp->window = bpf_htons(FIRST_WINDOW);
	/* Not among what has changed: it's corrected by what has. */
	tcp->check = packet->tcp.check;
	write_options(headers->new + sizeof(struct tcphdr), options, mtu - (l4 - ETH_HLEN) - sizeof(struct tcphdr), timestamp);
	__s64 difference = bpf_csum_diff((__be32 *)headers->old, sizeof(headers->old), (__be32 *)headers->new, sizeof(headers->new), 0);
	if (difference < 0 || bpf_skb_change_tail(skb, l4 + SYN_ACK_BYTES, 0) < 0)
		return 0;
	/* From here on it isn't the SYN any more. Turning the addresses round changes no sum. */
	__u32 checksum = l4 + TCP_CHECKSUM_OFFSET;
	if (!turn_ethernet(skb) || !turn_ip(skb, packet) || bpf_skb_store_bytes(skb, l4, headers->new, SYN_ACK_BYTES, 0) < 0 ||
	    bpf_l4_csum_replace(skb, checksum, 0, difference, 0) < 0 ||
	    bpf_l4_csum_replace(skb, checksum, bpf_htons(old_bytes), bpf_htons(SYN_ACK_BYTES), BPF_F_PSEUDO_HDR | 2) < 0)
		return TC_ACT_SHOT;
	/* As an answer of the kernel's own (`dispatcher_egress`). */
	skb->priority = TC_PRIO_INTERACTIVE;
	return bpf_redirect(skb->ifindex, 0);
}
