/* Reading packets: whose flow is it? Decides nothing. Ethernet, IPv4 and IPv6 without extension headers; fragments but the first aren't anybody's. */
#pragma once
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"

#define AF_INET 2
#define AF_INET6 10

#define TCP_CHECKSUM_OFFSET 16
#define TCP_URGENT_OFFSET 18
#define ICMP6_CHECKSUM_OFFSET 2
#define FRAGMENT_OFFSET_MASK 0x1fff

/* NOP, NOP, timestamp: how every stack in use lays it out. */
#define TIMESTAMP_OPTION 0x0101080a

/* The compiler forgets what it knows of a number, and so compares that very one where the verifier is to learn its bounds. */
#define AS_IT_IS(number) asm volatile("" : "+r"(number))

/* A number that was found to be 1 to `max`, a power of two. Before Linux 6.11 the verifier doesn't see that where the compiler has compared it less one. */
#define WITHIN(number, max) ({ AS_IT_IS(number); (((number) - 1) & ((max) - 1)) + 1; })

/* A function that the verifier looks through once, by itself, and not on each way to it anew. Kernels before Linux 6.3 want every byte of what such a function
 * is given to have been written before. */
#if defined(WITH_BIRTHS) && !defined(WITH_REPLAYS)
#define VERIFIED_ONCE __noinline
#else
#define VERIFIED_ONCE static __noinline
#endif

#define BYTES_4(a, b, c, d) bpf_htonl((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))

enum packet_kind {
	PACKET_OTHER,
	PACKET_TCP,
	PACKET_ERROR, /* an ICMP message about a TCP segment that the server sent: source and destination are the segment's, turned round */
};

struct packet {
	__u8 source[16];
	__u8 destination[16];
	__u8 sender[16]; /* of a message: who says it */
	__be16 source_port;
	__be16 destination_port;
	__u32 kind;
	__u32 is_ipv4;
	__u32 l4; /* where the TCP or ICMP header starts */
	__u32 payload; /* bytes after the TCP header */
	__u32 mark;
	struct tcphdr tcp;
};

static __always_inline void map_ipv4(__u8 address[16], __be32 ipv4)
{
	__builtin_memset(address, 0, 10);
	address[10] = address[11] = 0xff;
	__builtin_memcpy(address + 12, &ipv4, 4);
}

static __always_inline __be32 mapped_ipv4(const __u8 address[16])
{
	__be32 ipv4;
	__builtin_memcpy(&ipv4, address + 12, 4);
	return ipv4;
}

/* The header of an IP packet at `offset`. Returns the offset of what follows it, 0 when it's none that is understood. */
static __always_inline __u32 read_ipv4(struct __sk_buff *skb, __u32 offset, struct packet *packet, __u8 *protocol, __u32 *bytes)
{
	struct iphdr ip;
	if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)) < 0 || ip.ihl < 5)
		return 0;
	if (ip.frag_off & bpf_htons(FRAGMENT_OFFSET_MASK))
		return 0;
	map_ipv4(packet->source, ip.saddr);
	map_ipv4(packet->destination, ip.daddr);
	*protocol = ip.protocol;
	*bytes = bpf_ntohs(ip.tot_len) - ip.ihl * 4;
	return offset + ip.ihl * 4;
}

static __noinline __u32 read_ipv6(struct __sk_buff *skb, __u32 offset, struct packet *packet, __u8 *protocol, __u32 *bytes)
{
	struct ipv6hdr ip;
	if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)) < 0)
		return 0;
	__builtin_memcpy(packet->source, &ip.saddr, 16);
	__builtin_memcpy(packet->destination, &ip.daddr, 16);
	*protocol = ip.nexthdr;
	*bytes = bpf_ntohs(ip.payload_len);
	return offset + sizeof(ip);
}

static __always_inline int quotes_segment(__u8 protocol, __u8 type)
{
	/* Unreachable (too big among them), time exceeded, parameter problem; in IPv6 these and too big are 1 to 4. */
	if (protocol == IPPROTO_ICMP)
		return type == 3 || type == 11 || type == 12;
	return protocol == IPPROTO_ICMPV6 && type >= 1 && type <= 4;
}

static __always_inline void turn_round(struct packet *packet)
{
	__u8 address[16];
	__builtin_memcpy(address, packet->source, 16);
	__builtin_memcpy(packet->source, packet->destination, 16);
	__builtin_memcpy(packet->destination, address, 16);
	__be16 port = packet->source_port;
	packet->source_port = packet->destination_port;
	packet->destination_port = port;
}

static __always_inline void set_key(struct flow_key *key, const struct packet *packet)
{
	__builtin_memcpy(key->client, packet->source, 16);
	__builtin_memcpy(key->vip, packet->destination, 16);
	key->client_port = packet->source_port;
	key->vip_port = packet->destination_port;
}

/* The same of what its server says. */
static __always_inline void set_outward_key(struct flow_key *key, const struct packet *packet)
{
	__builtin_memcpy(key->client, packet->destination, 16);
	__builtin_memcpy(key->vip, packet->source, 16);
	key->client_port = packet->destination_port;
	key->vip_port = packet->source_port;
}

static __always_inline void read_quoted(struct __sk_buff *skb, struct packet *packet)
{
	__u32 at = packet->l4 + 8, unused;
	__u8 protocol;
	__be16 ports[2];
	__builtin_memcpy(packet->sender, packet->source, 16);
	at = packet->is_ipv4 ? read_ipv4(skb, at, packet, &protocol, &unused) : read_ipv6(skb, at, packet, &protocol, &unused);
	if (!at || protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, at, ports, sizeof(ports)) < 0)
		return;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	turn_round(packet);
	packet->kind = PACKET_ERROR;
}

static __always_inline void read_packet(struct __sk_buff *skb, struct packet *packet)
{
	__u8 protocol, type;
	__u32 bytes;
	__builtin_memset(packet, 0, sizeof(*packet));
	packet->is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	if (packet->is_ipv4)
		packet->l4 = read_ipv4(skb, ETH_HLEN, packet, &protocol, &bytes);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		packet->l4 = read_ipv6(skb, ETH_HLEN, packet, &protocol, &bytes);
	if (!packet->l4)
		return;
	if (protocol == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(skb, packet->l4, &packet->tcp, sizeof(packet->tcp)) < 0)
			return;
		packet->source_port = packet->tcp.source;
		packet->destination_port = packet->tcp.dest;
		/* Segments that the kernel has joined may be longer than an IP header can say. */
		if (skb->gso_segs > 1)
			bytes = skb->len - packet->l4;
		packet->payload = bytes - packet->tcp.doff * 4;
		packet->kind = PACKET_TCP;
	} else if (bpf_skb_load_bytes(skb, packet->l4, &type, 1) == 0 && quotes_segment(protocol, type)) {
		read_quoted(skb, packet);
	}
}

/* The TCP header of a packet that is as simple as nearly all are. */
static __always_inline struct tcphdr *simple_tcp(const struct __sk_buff *skb, struct iphdr **ip)
{
	const void *end = (const void *)(long)skb->data_end;
	*ip = (void *)(long)skb->data + ETH_HLEN;
	struct tcphdr *tcp = (void *)(*ip + 1);
	if (skb->protocol != bpf_htons(ETH_P_IP) || (const void *)(tcp + 1) > end)
		return NULL;
	return (*ip)->ihl == 5 && (*ip)->protocol == IPPROTO_TCP && !((*ip)->frag_off & bpf_htons(FRAGMENT_OFFSET_MASK)) ? tcp : NULL;
}

/* The client's clock, if the segment tells it. */
static __always_inline __u32 read_timestamp(struct __sk_buff *skb, const struct packet *packet)
{
	__be32 option[2];
	if (packet->tcp.doff < 8 || bpf_skb_load_bytes(skb, packet->l4 + sizeof(struct tcphdr), option, sizeof(option)) < 0)
		return 0;
	return option[0] == bpf_htonl(TIMESTAMP_OPTION) ? bpf_ntohl(option[1]) : 0;
}

/* Segments that are further than this from what is expected of a connection aren't believed to be of it. */
#define PLAUSIBLE_BYTES (1 << 22)

static __always_inline int is_near(__s32 distance)
{
	return distance <= PLAUSIBLE_BYTES && distance >= -PLAUSIBLE_BYTES;
}

/* Whether a front has named who had the packet's bucket before, as it does where it knows of no other holder (`spread.c`). */
static __always_inline int names_previous(const struct packet *packet)
{
	return packet->kind == PACKET_TCP && !packet->tcp.urg && packet->tcp.urg_ptr;
}

/* Whether a packet isn't of a connection that is over, whose numbers these are, but of the next one of its client's port: the SYN went to another owner of the bucket, so
 * that nothing here knows of it. Numbers rise by 16 a microsecond from one to the next (RFC 6528, in Linux). */
static __always_inline int is_of_next(const struct packet *packet, __u32 client_next, __u32 acknowledged)
{
	return names_previous(packet) && !packet->tcp.syn && !is_near(bpf_ntohl(packet->tcp.seq) - client_next) &&
	       !is_near(bpf_ntohl(packet->tcp.ack_seq) - acknowledged);
}

enum socket_kind {
	SOCKET_NONE,
	SOCKET_LISTENER,
	SOCKET_CONNECTION,
	SOCKET_OVER, /* in TIME_WAIT */
};

/* What this host has of a packet's connection, or who listens there. */
static __always_inline struct bpf_sock *look_up_socket(struct __sk_buff *skb, const struct packet *packet)
{
	struct bpf_sock_tuple tuple = {};
	__u32 size;
	if (packet->is_ipv4) {
		tuple.ipv4.saddr = mapped_ipv4(packet->source);
		tuple.ipv4.daddr = mapped_ipv4(packet->destination);
		tuple.ipv4.sport = packet->source_port;
		tuple.ipv4.dport = packet->destination_port;
		size = sizeof(tuple.ipv4);
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, packet->source, 16);
		__builtin_memcpy(tuple.ipv6.daddr, packet->destination, 16);
		tuple.ipv6.sport = packet->source_port;
		tuple.ipv6.dport = packet->destination_port;
		size = sizeof(tuple.ipv6);
	}
	return bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
}

static __always_inline int kind_of(const struct bpf_sock *socket)
{
	switch (socket->state) {
	case BPF_TCP_LISTEN:
		return SOCKET_LISTENER;
	case BPF_TCP_TIME_WAIT:
		return SOCKET_OVER;
	default:
		return SOCKET_CONNECTION;
	}
}

/* What became of a packet that was looked at in short. */
enum translated {
	IS_OTHERWISE,  /* it's to be looked at at length */
	IS_TRANSLATED,
	IS_NOBODYS,    /* of no connection whose handshake has been replayed */
	IS_BROKEN,     /* nobody is to see it */
};

enum which_address { SOURCE_ADDRESS, DESTINATION_ADDRESS };

/* Gives a packet another address, checksums included. Returns false when it couldn't be. */
static __always_inline int set_address(struct __sk_buff *skb, const struct packet *packet, enum which_address which, const __u8 *from, const __u8 *to)
{
	__u32 is_tcp = packet->kind == PACKET_TCP;
	__u32 checksum = packet->l4 + (is_tcp ? TCP_CHECKSUM_OFFSET : ICMP6_CHECKSUM_OFFSET);
	__u32 at = ETH_HLEN;
	if (packet->is_ipv4) {
		__be32 old = mapped_ipv4(from), new = mapped_ipv4(to);
		at += which == SOURCE_ADDRESS ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr);
		/* ICMP's own checksum doesn't cover the addresses. */
		if (is_tcp && bpf_l4_csum_replace(skb, checksum, old, new, BPF_F_PSEUDO_HDR | sizeof(new)) < 0)
			return 0;
		if (bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), old, new, sizeof(new)) < 0)
			return 0;
		return bpf_skb_store_bytes(skb, at, &new, sizeof(new), 0) == 0;
	}
	at += which == SOURCE_ADDRESS ? offsetof(struct ipv6hdr, saddr) : offsetof(struct ipv6hdr, daddr);
	__s64 difference = bpf_csum_diff((__be32 *)from, 16, (__be32 *)to, 16, 0);
	if (difference < 0 || bpf_l4_csum_replace(skb, checksum, 0, difference, BPF_F_PSEUDO_HDR) < 0)
		return 0;
	return bpf_skb_store_bytes(skb, at, to, 16, 0) == 0;
}

/* Gives a segment another urgent pointer. Returns false when it couldn't be. */
static __always_inline int set_urgent_pointer(struct __sk_buff *skb, const struct packet *packet, __be16 to)
{
	return bpf_l4_csum_replace(skb, packet->l4 + TCP_CHECKSUM_OFFSET, packet->tcp.urg_ptr, to, sizeof(to)) == 0 &&
	       bpf_skb_store_bytes(skb, packet->l4 + TCP_URGENT_OFFSET, &to, sizeof(to), 0) == 0;
}

#define COUNTERS(name, number)                                  \
	struct {                                                \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);        \
		__uint(max_entries, number);                    \
		__type(key, __u32);                             \
		__type(value, __u64);                           \
	} name SEC(".maps");                                    \
	static __always_inline void count(__u32 which)          \
	{                                                       \
		__u64 *value = bpf_map_lookup_elem(&name, &which); \
		if (value)                                      \
			*value += 1;                            \
	}
