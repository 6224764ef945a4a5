"""The papers behind the schemes, as BibTeX; nothing here imports JAX.

Entries hold what is certain: a page or an identifier that is not is left out.
"""

from __future__ import annotations

import dataclasses
import re

from mrsa_jax._errors import require
from mrsa_jax._version import __version__

__all__ = ["PAPERS", "Paper", "read_bibtex", "software"]


@dataclasses.dataclass(frozen=True)
class Paper:
    """A source that can be cited.

    Attributes:
        kind: BibTeX's type of entry.
        key: Its key.
        fields: Its fields in order, as BibTeX has them.
    """

    kind: str
    key: str
    fields: tuple[tuple[str, str], ...]

    @property
    def bibtex(self) -> str:
        """The entry as BibTeX."""
        width = max(len(name) for name, _ in self.fields)
        lines = [f"  {name:{width}} = {{{value}}}," for name, value in self.fields]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])

    @property
    def link(self) -> str | None:
        """Where it can be read, if that is known."""
        fields = dict(self.fields)
        if "doi" in fields:
            return f"https://doi.org/{fields['doi']}"
        if "eprint" in fields:
            return f"https://arxiv.org/abs/{fields['eprint']}"
        return fields.get("url")

    @property
    def reference(self) -> str:
        """The entry as a line of plain text: authors, title, where, year."""
        fields = {name: _spoken(value) for name, value in self.fields}
        authors = [_surname(one) for one in fields["author"].split(" and ")]
        if len(authors) > 3:
            who = f"{authors[0]} et al."
        else:
            who = " and ".join([", ".join(authors[:-1]), authors[-1]] if authors[1:] else authors)
        places = [fields.get(name) for name in ("journal", "booktitle", "institution", "publisher",
                                                 "howpublished")]  # fmt: skip
        where = next((place for place in places if place), None)
        if where is None and "eprint" in fields:
            where = f"arXiv:{fields['eprint']}"
        last = ", ".join(part for part in (where, fields.get("year")) if part)
        title = fields["title"] + "." * (not fields["title"].endswith("?"))
        return f"{who}: {title}" + (f" {last}." if last else "")


def read_bibtex(entry: str) -> Paper:
    """Return the paper of one entry of BibTeX.

    Raises:
        ConfigurationError: If it is none, or has neither author nor title.

    Examples:
        >>> read_bibtex("@misc{me2026, author = {Me}, title = {The {JAX} of it}}").reference
        'Me: The JAX of it.'
    """
    head = re.fullmatch(r"\s*@(\w+)\s*\{\s*([^\s,{}]+)\s*,(.*)\}\s*", entry, re.DOTALL)
    found = [] if head is None else _FIELD.findall(head[3])
    fields = {name.lower(): v[1:-1] if v[0] in '{"' else v for name, v in found}
    good = head is not None and {"author", "title"} <= set(fields)
    require(good, "papers", "must be BibTeX entries with author and title", entry)
    return Paper(head[1].lower(), head[2], tuple(fields.items()))  # type: ignore[index]


_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_FIELD = re.compile(rf'(\w+)\s*=\s*({_BRACES}|"[^"]*"|\w+)')


_SPOKEN = {
    r"{\u{g}}": "ğ", r"{\c{s}}": "ş", r'{\"u}': "ü", r'{\"o}': "ö", r"{\`a}": "à", r"{\`e}": "è",
    r"{\'e}": "é", r"{\'o}": "ó", r"{\v{c}}": "č", r"{\'y}": "ý", r"{\ss}": "ß", r'{\"a}': "ä",
    "--": "\u2013",
    r"\_": "_", r"\&": "&",
}  # fmt: skip


def _spoken(value: str) -> str:
    """Return a field's text without BibTeX's marks."""
    for written, letter in _SPOKEN.items():
        value = value.replace(written, letter)
    return value.replace("{", "").replace("}", "")


def _surname(author: str) -> str:
    return author.split(",")[0].strip()


def _paper(kind: str, key: str, **fields: str) -> Paper:
    return Paper(kind, key, tuple(fields.items()))


def _arxiv(key: str, author: str, title: str, year: str, number: str) -> Paper:
    return _paper("misc", key, author=author, title=title, year=year, eprint=number,
                  archiveprefix="arXiv")  # fmt: skip


_CCS = "Proceedings of the {year} ACM SIGSAC Conference on Computer and Communications Security"
_NEURIPS = "Advances in Neural Information Processing Systems"
_PMLR = "Proceedings of Machine Learning Research"

_ALL = (
    # the three papers of the package, and what they build on
    _paper(
        "inproceedings", "so2023securing",
        author=r"So, Jinhyun and Ali, Ramy E. and G{\"u}ler, Ba{\c{s}}ak and Jiao, Jiantao"
        " and Avestimehr, A. Salman",
        title="Securing Secure Aggregation: Mitigating Multi-Round Privacy Leakage in Federated"
        " Learning",
        booktitle="Proceedings of the AAAI Conference on Artificial Intelligence",
        year="2023", volume="37", number="8", pages="9864--9873", doi="10.1609/aaai.v37i8.26177",
        eprint="2106.03328", archiveprefix="arXiv",
    ),
    _arxiv(
        "choi2020communication",
        "Choi, Beongjun and Sohn, Jy-yong and Han, Dong-Jun and Moon, Jaekyun",
        "Communication-Computation Efficient Secure Aggregation for Federated Learning",
        "2020", "2012.05433",
    ),
    _paper(
        "article", "elkordy2022heterosag",
        author="Elkordy, Ahmed Roushdy and Avestimehr, A. Salman",
        title="{HeteroSAg}: Secure Aggregation with Heterogeneous Quantization in Federated"
        " Learning",
        journal="IEEE Transactions on Communications",
        year="2022", volume="70", number="4", pages="2372--2386",
        eprint="2009.14388", archiveprefix="arXiv",
    ),
    _paper(
        "inproceedings", "bonawitz2017practical",
        author="Bonawitz, Keith and Ivanov, Vladimir and Kreuter, Ben and Marcedone, Antonio"
        " and McMahan, H. Brendan and Patel, Sarvar and Ramage, Daniel and Segal, Aaron"
        " and Seth, Karn",
        title="Practical Secure Aggregation for Privacy-Preserving Machine Learning",
        booktitle=_CCS.format(year=2017), year="2017", pages="1175--1191",
        doi="10.1145/3133956.3133982",
    ),
    _paper(
        "inproceedings", "bell2020secure",
        author=r"Bell, James Henry and Bonawitz, Kallista A. and Gasc{\'o}n, Adri{\`a}"
        r" and Lepoint, Tancr{\`e}de and Raykova, Mariana",
        title="Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
        booktitle=_CCS.format(year=2020), year="2020", pages="1253--1269",
        doi="10.1145/3372297.3417885",
    ),
    _paper(
        "inproceedings", "mcmahan2017communication",
        author="McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth"
        r" and Ag{\"u}era y Arcas, Blaise",
        title="Communication-Efficient Learning of Deep Networks from Decentralized Data",
        booktitle="Proceedings of the 20th International Conference on Artificial Intelligence"
        " and Statistics",
        series=_PMLR, year="2017", volume="54", pages="1273--1282",
        eprint="1602.05629", archiveprefix="arXiv",
    ),
    # cryptography and graphs
    _paper(
        "article", "shamir1979share", author="Shamir, Adi", title="How to Share a Secret",
        journal="Communications of the ACM", year="1979", volume="22", number="11",
        pages="612--613", doi="10.1145/359168.359176",
    ),
    _paper(
        "techreport", "rfc8439", author="Nir, Yoav and Langley, Adam",
        title="{ChaCha20} and {Poly1305} for {IETF} Protocols", institution="IETF",
        type="RFC", number="8439", year="2018", doi="10.17487/RFC8439",
    ),
    _paper(
        "techreport", "rfc7748", author="Langley, Adam and Hamburg, Mike and Turner, Sean",
        title="Elliptic Curves for Security", institution="IETF", type="RFC", number="7748",
        year="2016", doi="10.17487/RFC7748",
    ),
    _paper(
        "techreport", "rfc5869", author="Krawczyk, Hugo and Eronen, Pasi",
        title="{HMAC}-based Extract-and-Expand Key Derivation Function ({HKDF})",
        institution="IETF", type="RFC", number="5869", year="2010", doi="10.17487/RFC5869",
    ),
    _paper(
        "article", "harary1962maximum", author="Harary, Frank",
        title="The Maximum Connectivity of a Graph",
        journal="Proceedings of the National Academy of Sciences", year="1962", volume="48",
        number="7", pages="1142--1146", doi="10.1073/pnas.48.7.1142",
    ),
    # selection
    _arxiv(
        "cho2020client", "Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri",
        "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection"
        " Strategies", "2020", "2010.01243",
    ),
    # training
    _paper(
        "inproceedings", "li2020federated",
        author="Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar"
        " and Talwalkar, Ameet and Smith, Virginia",
        title="Federated Optimization in Heterogeneous Networks",
        booktitle="Proceedings of Machine Learning and Systems", year="2020", volume="2",
        pages="429--450",
    ),
    _arxiv(
        "hsu2019measuring", "Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        "Measuring the Effects of Non-Identical Data Distribution for Federated Visual"
        " Classification", "2019", "1909.06335",
    ),
    _paper(
        "inproceedings", "reddi2021adaptive",
        author="Reddi, Sashank J. and Charles, Zachary and Zaheer, Manzil and Garrett, Zachary"
        r" and Rush, Keith and Kone{\v{c}}n{\'y}, Jakub and Kumar, Sanjiv"
        " and McMahan, H. Brendan",
        title="Adaptive Federated Optimization",
        booktitle="International Conference on Learning Representations", year="2021",
        eprint="2003.00295", archiveprefix="arXiv",
    ),
    _arxiv(
        "zhao2018federated",
        "Zhao, Yue and Li, Meng and Lai, Liangzhen and Suda, Naveen and Civin, Damon"
        " and Chandra, Vikas",
        "Federated Learning with Non-{IID} Data", "2018", "1806.00582",
    ),
    _paper(
        "inproceedings", "simonyan2015very", author="Simonyan, Karen and Zisserman, Andrew",
        title="Very Deep Convolutional Networks for Large-Scale Image Recognition",
        booktitle="International Conference on Learning Representations", year="2015",
        eprint="1409.1556", archiveprefix="arXiv",
    ),
    _paper(
        "inproceedings", "wu2018group", author="Wu, Yuxin and He, Kaiming",
        title="Group Normalization",
        booktitle="Proceedings of the European Conference on Computer Vision (ECCV)", year="2018",
        eprint="1803.08494", archiveprefix="arXiv",
    ),
    # robust rules
    _paper(
        "inproceedings", "yin2018byzantine",
        author="Yin, Dong and Chen, Yudong and Kannan, Ramchandran and Bartlett, Peter",
        title="Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
        booktitle="Proceedings of the 35th International Conference on Machine Learning",
        series=_PMLR, year="2018", volume="80", pages="5650--5659",
        eprint="1803.01498", archiveprefix="arXiv",
    ),
    _paper(
        "article", "pillutla2022robust",
        author="Pillutla, Krishna and Kakade, Sham M. and Harchaoui, Zaid",
        title="Robust Aggregation for Federated Learning",
        journal="IEEE Transactions on Signal Processing", year="2022", volume="70",
        pages="1142--1154", eprint="1912.13445", archiveprefix="arXiv",
    ),
    _paper(
        "inproceedings", "blanchard2017machine",
        author="Blanchard, Peva and El Mhamdi, El Mahdi and Guerraoui, Rachid and Stainer, Julien",
        title="Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
        booktitle=_NEURIPS, year="2017", volume="30",
    ),
    # attacks
    _paper(
        "inproceedings", "lam2021gradient",
        author="Lam, Maximilian and Wei, Gu-Yeon and Brooks, David and Reddi, Vijay Janapa"
        " and Mitzenmacher, Michael",
        title="Gradient Disaggregation: Breaking Privacy in Federated Learning by Reconstructing"
        " the User Participant Matrix",
        booktitle="Proceedings of the 38th International Conference on Machine Learning",
        series=_PMLR, year="2021", volume="139", pages="5959--5968", eprint="2106.06089",
        archiveprefix="arXiv",
    ),
    _paper(
        "inproceedings", "geiping2020inverting",
        author=r"Geiping, Jonas and Bauermeister, Hartmut and Dr{\"o}ge, Hannah"
        " and Moeller, Michael",
        title="Inverting Gradients -- How Easy Is It to Break Privacy in Federated Learning?",
        booktitle=_NEURIPS, year="2020", volume="33", eprint="2003.14053", archiveprefix="arXiv",
    ),
    _paper(
        "inproceedings", "zhu2019deep", author="Zhu, Ligeng and Liu, Zhijian and Han, Song",
        title="Deep Leakage from Gradients", booktitle=_NEURIPS, year="2019", volume="32",
        eprint="1906.08935", archiveprefix="arXiv",
    ),
    _arxiv(
        "zhao2020idlg", "Zhao, Bo and Mopuri, Konda Reddy and Bilen, Hakan",
        "{iDLG}: Improved Deep Leakage from Gradients", "2020", "2001.02610",
    ),
    _paper(
        "inproceedings", "boenisch2023curious",
        author="Boenisch, Franziska and Dziedzic, Adam and Schuster, Roei"
        " and Shamsabadi, Ali Shahin and Shumailov, Ilia and Papernot, Nicolas",
        title="When the Curious Abandon Honesty: Federated Learning Is Not Private",
        booktitle="IEEE European Symposium on Security and Privacy (EuroS\\&P)", year="2023",
        eprint="2112.02918", archiveprefix="arXiv",
    ),
    _paper(
        "inproceedings", "fredrikson2015model",
        author="Fredrikson, Matt and Jha, Somesh and Ristenpart, Thomas",
        title="Model Inversion Attacks that Exploit Confidence Information and Basic"
        " Countermeasures",
        booktitle="Proceedings of the 22nd ACM SIGSAC Conference on Computer and Communications"
        " Security",
        year="2015", pages="1322--1333", doi="10.1145/2810103.2813677",
    ),
    _paper(
        "inproceedings", "yeom2018privacy",
        author="Yeom, Samuel and Giacomelli, Irene and Fredrikson, Matt and Jha, Somesh",
        title="Privacy Risk in Machine Learning: Analyzing the Connection to Overfitting",
        booktitle="IEEE 31st Computer Security Foundations Symposium (CSF)", year="2018",
        pages="268--282", doi="10.1109/CSF.2018.00027",
    ),
    _paper(
        "inproceedings", "shokri2017membership",
        author="Shokri, Reza and Stronati, Marco and Song, Congzheng and Shmatikov, Vitaly",
        title="Membership Inference Attacks Against Machine Learning Models",
        booktitle="IEEE Symposium on Security and Privacy (SP)", year="2017", pages="3--18",
        doi="10.1109/SP.2017.41",
    ),
    _paper(
        "inproceedings", "carlini2022membership",
        author=r"Carlini, Nicholas and Chien, Steve and Nasr, Milad and Song, Shuang"
        r" and Terzis, Andreas and Tram{\`e}r, Florian",
        title="Membership Inference Attacks From First Principles",
        booktitle="IEEE Symposium on Security and Privacy (SP)", year="2022", pages="1897--1914",
        doi="10.1109/SP46214.2022.9833649",
    ),
    _paper(
        "inproceedings", "pasquini2022eluding",
        author="Pasquini, Dario and Francati, Danilo and Ateniese, Giuseppe",
        title="Eluding Secure Aggregation in Federated Learning via Model Inconsistency",
        booktitle=_CCS.format(year=2022), year="2022", pages="2429--2443",
        doi="10.1145/3548606.3560557",
    ),
    # data sets
    _paper(
        "article", "lecun1998gradient",
        author=r"LeCun, Yann and Bottou, L{\'e}on and Bengio, Yoshua and Haffner, Patrick",
        title="Gradient-Based Learning Applied to Document Recognition",
        journal="Proceedings of the IEEE", year="1998", volume="86", number="11",
        pages="2278--2324", doi="10.1109/5.726791",
    ),
    _paper(
        "article", "raschka2018mlxtend", author="Raschka, Sebastian",
        title="{MLxtend}: Providing Machine Learning and Data Science Utilities and Extensions to"
        " {Python}'s Scientific Computing Stack",
        journal="Journal of Open Source Software", year="2018", volume="3", number="24",
        pages="638", doi="10.21105/joss.00638",
    ),
    _paper(
        "misc", "alpaydin1998optical", author="Alpaydin, E. and Kaynak, C.",
        title="Optical Recognition of Handwritten Digits",
        howpublished="UCI Machine Learning Repository", year="1998", doi="10.24432/C50P49",
    ),
    _arxiv(
        "xiao2017fashion", "Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
        "{Fashion-MNIST}: A Novel Image Dataset for Benchmarking Machine Learning Algorithms",
        "2017", "1708.07747",
    ),
    _paper(
        "techreport", "krizhevsky2009learning", author="Krizhevsky, Alex",
        title="Learning Multiple Layers of Features from Tiny Images",
        institution="University of Toronto", year="2009",
    ),
    _paper(
        "inproceedings", "samaria1994parameterisation",
        author="Samaria, Ferdinando S. and Harter, Andy C.",
        title="Parameterisation of a Stochastic Model for Human Face Identification",
        booktitle="Proceedings of 1994 IEEE Workshop on Applications of Computer Vision",
        year="1994", pages="138--142", doi="10.1109/ACV.1994.341300",
    ),
    # software
    _paper(
        "software", "jax2018github",
        author="Bradbury, James and Frostig, Roy and Hawkins, Peter and Johnson, Matthew James"
        " and Leary, Chris and Maclaurin, Dougal and Necula, George and Paszke, Adam"
        " and VanderPlas, Jake and Wanderman-Milne, Skye and Zhang, Qiao",
        title="{JAX}: Composable Transformations of {Python}+{NumPy} Programs", year="2018",
        url="https://github.com/jax-ml/jax",
    ),
)  # fmt: skip

PAPERS: dict[str, Paper] = {paper.key: paper for paper in _ALL}
"""Every source, by its key."""


def software() -> Paper:
    """Return the entry of this package, at its installed version."""
    return _paper(
        "software", "mrsa_jax",
        author=r"{The mrsa\_jax authors}",
        title=r"{mrsa\_jax}: A {JAX}-Accelerated Simulator of Multi-Round Secure Aggregation in"
        " Federated Learning",
        version=__version__,
    )  # fmt: skip
